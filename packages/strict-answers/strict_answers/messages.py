"""Messages between a pool and its workers: a JSON object a line.

No pickle, because a worker reads model output and may run other people's code: what it sends back is only ever data.
"""

import json
from typing import Any

LARGEST = 1 << 28
"Bytes; a longer message means a corrupt stream."
Message = dict[str, Any]


def encode(message: Message) -> bytes:
    """A message as a line of ASCII. Lone surrogates in model output survive as JSON escapes."""
    return json.dumps(message, allow_nan=False).encode() + b"\n"


def take(buffer: bytearray) -> Message | None:
    """Remove the first message from `buffer` and return it; None while it is incomplete, ValueError if invalid."""
    end = buffer.find(b"\n")
    if end < 0:
        if len(buffer) > LARGEST:
            raise ValueError("a message of impossible length")
        return None
    message = json.loads(bytes(buffer[:end]))
    del buffer[: end + 1]
    if not isinstance(message, dict):
        raise ValueError("a message that is not an object")
    return message
