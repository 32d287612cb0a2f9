"""Arguments and results of an answer as JSON, by exact type. No pickle, because the sender is not trusted."""

from typing import Any

import numpy as np

from pmdkit.errors import printable
from pmdkit_course.comparison import shown, to_numpy

LARGEST = 2**22
"Largest array that is sent, in bytes; right answers have a few hundred."
MOST = 1000
"Most values that lists are sent with; larger ones are sent as an array, which is compared in one go."
KINDS = "fiub"
Json = Any


class Other:
    """Something that cannot be an answer: it can be shown but not compared."""

    def __init__(self, text: str) -> None:
        self.text = printable(text)  # the process that sends it is not trusted

    def __repr__(self) -> str:
        return self.text


def encode(value: Any) -> Json:
    """A value as JSON: text, lists and Python's numbers as they are, all else as {its kind: what it holds}.

    NumPy numbers and tensors keep their type: an answer may use their shape, or divide them by zero. Anything that
    cannot be an answer becomes the text that shows it.

    Raises:
        ValueError: an array is too large.
    """
    if value is None or type(value) in (bool, float) or (type(value) is int and abs(value) < 2**63):
        return value
    if isinstance(value, str):
        return str(value)[:1000]
    if type(value) in (tuple, list) and count(value) <= MOST:
        parts = [encode(part) for part in value]
        return parts if type(value) is list else {"tuple": parts}
    if value is ...:
        return {"ellipsis": None}
    try:
        array = np.asarray(to_numpy(value))
    except Exception:  # a learner's own object
        return {"other": shown(value)}
    if array.dtype.kind not in KINDS:
        return {"other": shown(value)}
    if array.nbytes > LARGEST:
        raise ValueError(f"it returned an array of {array.nbytes / 1e6:.0f} MB; shape {list(array.shape)}")
    kind = "tensor" if hasattr(value, "detach") else "scalar" if isinstance(value, np.generic) else "array"
    return {kind: [array.dtype.str, array.shape, array.ravel().tolist()]}


def count(value: Any) -> int:
    """How many values there are in lists within lists."""
    return sum(map(count, value)) if type(value) in (tuple, list) else 1


def decode(message: Json) -> Any:
    """The value in a message; raises ValueError if `encode` cannot have written it."""
    if isinstance(message, list):
        return [decode(part) for part in message]
    if not isinstance(message, dict):
        return message
    try:
        ((kind, held),) = message.items()
        if kind in ("ellipsis", "other", "tuple"):
            return ... if kind == "ellipsis" else Other(str(held)) if kind == "other" else tuple(map(decode, held))
        dtype, shape, entries = held
        if np.dtype(str(dtype)).kind not in KINDS or kind not in ("array", "scalar", "tensor"):
            raise ValueError(f"a {kind} of {dtype}")
        array = np.array(entries, dtype).reshape(shape)
    except (TypeError, RecursionError, OverflowError) as problem:
        raise ValueError(f"no value: {problem}") from problem
    if kind == "tensor":
        import torch  # slow, and most answers do without

        return torch.from_numpy(array)
    return array[()] if kind == "scalar" else array
