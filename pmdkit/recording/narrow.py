"""Numbers in as few bytes as hold them exactly: one number for equal ones, small integers, float32. No rounding.

Narrowing is in numpy: it runs in every recorded step, where a call of torch costs more than the arithmetic in it.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

SMALLER = {
    "int64": ("uint8", "int16", "int32"),
    "float64": ("uint8", "float32"),
    "float32": ("uint8",),
    "bool": ("uint8",),
}
NAMES = {np.dtype(name): name for name in SMALLER}
BOUNDS = {name: (int(np.iinfo(name).min), int(np.iinfo(name).max)) for name in SMALLER["int64"]}


def narrow(x: NDArray[Any]) -> tuple[NDArray[Any], dict[str, Any]]:
    """What is stored of an array, and how to get it back: `dtype`, and `shape` where one number stands for all."""
    x = np.asarray(x, order="C")
    kind = NAMES.get(x.dtype) or x.dtype.name
    how: dict[str, Any] = {"dtype": kind}
    if one_number(x):
        how["shape"] = list(x.shape)
        x = x.reshape(-1)[:1]
    for dtype in SMALLER.get(kind, ()):
        if fits(x, dtype):
            return x.astype(dtype), how
    return x, how


def widen(stored: Tensor, how: dict[str, Any]) -> Tensor:
    """The inverse of `narrow`, bit for bit but for the sign of a zero."""
    x = stored.to(getattr(torch, how["dtype"]))
    return x.expand(how["shape"]).clone() if "shape" in how else x


def one_number(x: NDArray[Any]) -> bool:
    """Whether all of several numbers are the same."""
    if x.size < 2:
        return False
    first, last = x.item(0), x.item(-1)  # most arrays are told by these two
    alike = first == last or (first != first and last != last)
    return alike and same(x, x.reshape(-1)[0])


def fits(x: NDArray[Any], dtype: str) -> bool:
    """Whether every number survives the way there and back."""
    if dtype in BOUNDS and x.size:
        low, high = BOUNDS[dtype]
        # converting what is outside is undefined, and NaN is; log-probabilities are told by their first number
        if not (low <= x.item(0) <= high and low <= x.min() and x.max() <= high):
            return False
    if x.dtype.kind != "f":
        return True
    with np.errstate(over="ignore", invalid="ignore"):  # what float32 cannot hold becomes infinite, and does not fit
        return same(x.astype(dtype), x)


def same(x: NDArray[Any], y: NDArray[Any]) -> bool:
    """Equal everywhere, NaN where NaN."""
    equal = x == y
    return bool(equal.all()) or bool((equal | ((x != x) & (y != y))).all())
