"""Arguments and results of an answer as JSON, by exact type. No pickle, because the sender is not trusted."""

import base64
from collections.abc import Callable
from typing import Any

import numpy as np

from pmdkit.errors import printable
from pmdkit_course.comparison import shown, to_numpy

LARGEST = 2**22
"Largest array that is sent, in bytes; right answers have a few hundred."
KINDS = "fiubc"


class Other:
    """Something that cannot be an answer: it can be shown but not compared."""

    def __init__(self, text: str) -> None:
        self.text = printable(text)  # the process that sends it is not trusted

    def __repr__(self) -> str:
        return self.text


def encode(value: Any) -> dict[str, Any]:
    """A value as JSON. Anything that cannot be an answer becomes the text that shows it.

    Raises:
        ValueError: an array is too large.
    """
    if value is None or value is ... or isinstance(value, bool):
        return {"is": {None: "none", ...: "ellipsis", True: "true", False: "false"}[value]}
    if isinstance(value, str):
        return {"is": "word", "text": str(value)[:1000]}
    if isinstance(value, int) and abs(value) < 2**63:
        return {"is": "int", "text": str(int(value))}
    if isinstance(value, float):
        return {"is": "float", "text": float(value).hex()}
    if isinstance(value, tuple | list) and len(value) <= 1000:
        return {"is": "tuple" if isinstance(value, tuple) else "list", "parts": [encode(part) for part in value]}
    array = as_array(value)
    if array is None:
        return {"is": "other", "text": shown(value)}
    if array.nbytes > LARGEST:
        raise ValueError(f"it returned an array of {array.nbytes / 1e6:.0f} MB; shape {list(array.shape)}")
    data = base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()
    return {"is": "array", "dtype": array.dtype.str, "shape": list(array.shape), "data": data}


def as_array(value: Any) -> np.ndarray | None:
    """Arrays, tensors, NumPy numbers and long lists of numbers as an array; None for everything else."""
    try:
        array = np.asarray(to_numpy(value))
    except Exception:  # a learner's own object
        return None
    return array if array.dtype.kind in KINDS else None


def decode(message: dict[str, Any]) -> Any:
    """The value in a message; raises ValueError if `encode` cannot have written it."""
    try:
        kind = message["is"]
        if kind in ("none", "ellipsis", "true", "false"):
            return {"none": None, "ellipsis": ..., "true": True, "false": False}[kind]
        if kind in ("tuple", "list"):
            parts = [decode(part) for part in message["parts"]]
            return tuple(parts) if kind == "tuple" else parts
        if kind == "array":
            dtype = np.dtype(str(message["dtype"]))
            if dtype.kind not in KINDS:
                raise ValueError(f"an array of {dtype}")
            return np.frombuffer(base64.b64decode(message["data"]), dtype).reshape(message["shape"]).copy()
        text = str(message["text"])
        readers: dict[str, Callable[[str], Any]] = {"word": str, "int": int, "float": float.fromhex, "other": Other}
        return readers[kind](text)
    except (KeyError, TypeError, RecursionError) as problem:
        raise ValueError(f"no value: {problem}") from problem


# NumPy numbers and tensors keep their type as arguments: an answer may use their shape, or divide them by zero.


def pack(argument: Any) -> dict[str, Any]:
    """An argument, or the tuple of all arguments, as JSON.

    Raises:
        TypeError: an argument has a type that no exercise uses.
    """
    if isinstance(argument, tuple | list):
        return {"is": type(argument).__name__, "parts": [pack(part) for part in argument]}
    if isinstance(argument, np.generic) and argument.dtype.kind in KINDS:
        return {"is": "scalar", "dtype": argument.dtype.str, "data": base64.b64encode(argument.tobytes()).decode()}
    if type(argument).__module__ == "torch":
        return {"is": "tensor", "array": encode(argument.detach().cpu().numpy())}
    message = encode(argument)
    if message["is"] == "other":
        raise TypeError(f"an argument is a {type(argument).__name__}; expected numbers, text, arrays, tensors, lists")
    return message


def unpack(message: dict[str, Any]) -> Any:
    """What `pack` was given."""
    if message["is"] in ("tuple", "list"):
        parts = [unpack(part) for part in message["parts"]]
        return tuple(parts) if message["is"] == "tuple" else parts
    if message["is"] == "scalar":
        return np.frombuffer(base64.b64decode(message["data"]), np.dtype(message["dtype"]))[0]
    if message["is"] == "tensor":
        import torch

        return torch.from_numpy(decode(message["array"]))
    return decode(message)
