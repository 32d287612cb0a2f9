"""Messages between the pool and a worker: four bytes of length, then JSON. No pickle: a worker is not trusted."""

import json
import struct
from typing import Any

HEAD = struct.Struct(">I")
LARGEST = 1 << 28
"Bytes; a longer message is a broken pipe, not a message."


def pack(message: dict[str, Any]) -> bytes:
    """A message as bytes. Lone surrogates in model output survive as JSON escapes."""
    body = json.dumps(message, allow_nan=False).encode()
    return HEAD.pack(len(body)) + body


def unpack(buffer: bytearray) -> dict[str, Any] | None:
    """The message that `buffer` begins with, taken out of it; None while it is incomplete. ValueError if it is none."""
    if len(buffer) < HEAD.size:
        return None
    (length,) = HEAD.unpack_from(buffer)
    if length > LARGEST:
        raise ValueError("a message of impossible length")
    if len(buffer) < HEAD.size + length:
        return None
    message = json.loads(bytes(buffer[HEAD.size : HEAD.size + length]))
    del buffer[: HEAD.size + length]
    if not isinstance(message, dict):
        raise ValueError("a message that is no object")
    return message
