"""Messages between a pool and its workers: four bytes of length, then a JSON object.

No pickle, because a worker reads model output and may run other people's code: what it sends back is only ever data.
"""

import json
import os
import struct
from typing import Any

HEAD = struct.Struct(">I")
LARGEST = 1 << 28
"Bytes; a longer message means a corrupt stream."
Message = dict[str, Any]


def encode(message: Message) -> bytes:
    """A message as bytes. Lone surrogates in model output survive as JSON escapes."""
    body = json.dumps(message, allow_nan=False).encode()
    return HEAD.pack(len(body)) + body


def take(buffer: bytearray) -> Message | None:
    """Remove the first message from `buffer` and return it; None while it is incomplete, ValueError if invalid."""
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
        raise ValueError("a message that is not an object")
    return message


def send(descriptor: int, message: Message) -> None:
    """Write a whole message to a blocking pipe."""
    data = memoryview(encode(message))
    while data:
        data = data[os.write(descriptor, data) :]


def receive(descriptor: int) -> Message | None:
    """The next message of a blocking pipe; None when the other side has closed it."""
    head = read_exactly(descriptor, HEAD.size)
    body = read_exactly(descriptor, HEAD.unpack(head)[0]) if head else None
    return None if body is None else json.loads(body)


def read_exactly(descriptor: int, count: int) -> bytes | None:
    """`count` bytes, or None at the end of the pipe."""
    parts = bytearray()
    while len(parts) < count:
        part = os.read(descriptor, count - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)
