"""Arguments of an answer on their way to the process that runs it, as JSON: what values.py carries, by exact type.

A number of NumPy stays one, and a tensor too: an answer may ask for its shape, or divide it by zero.
"""

import base64
from typing import Any

import numpy as np

from pmdkit.learn.values import KINDS, encode
from pmdkit.learn.values import decode as decode_value


def pack(case: tuple[Any, ...]) -> list[Any]:
    """A case as JSON.

    Raises:
        TypeError: an argument of a type that no exercise has.
    """
    return [pack_one(argument) for argument in case]


def pack_one(argument: Any) -> dict[str, Any]:
    """One argument."""
    if isinstance(argument, tuple | list):
        return {"is": type(argument).__name__, "parts": [pack_one(part) for part in argument]}
    if isinstance(argument, np.generic) and argument.dtype.kind in KINDS:
        return {"is": "scalar", "dtype": argument.dtype.str, "data": base64.b64encode(argument.tobytes()).decode()}
    if type(argument).__module__ == "torch":
        return {"is": "tensor", "array": encode(argument.detach().cpu().numpy())}
    message = encode(argument)
    if message["is"] == "other":
        raise TypeError(f"an argument is a {type(argument).__name__}; expected numbers, text, arrays, tensors, lists")
    return message


def unpack(message: list[Any]) -> tuple[Any, ...]:
    """The case."""
    return tuple(unpack_one(part) for part in message)


def unpack_one(message: dict[str, Any]) -> Any:
    """One argument."""
    if message["is"] in ("tuple", "list"):
        parts = [unpack_one(part) for part in message["parts"]]
        return tuple(parts) if message["is"] == "tuple" else parts
    if message["is"] == "scalar":
        return np.frombuffer(base64.b64decode(message["data"]), np.dtype(message["dtype"]))[0]
    if message["is"] == "tensor":
        import torch

        return torch.from_numpy(decode_value(message["array"]))
    return decode_value(message)
