"""Compares what an answer returned with what was wanted: form first, then value. It calls no answer: calling.py."""

import math
import numbers
from typing import Any

import numpy as np


def form(given: Any, wanted: Any) -> str | None:
    """What is wrong with the form of an answer, whatever its value: type, shape, numbers that are none."""
    if given is ...:
        return "Filled in on some inputs only; expected an answer to every input."
    if given is None:
        return "It returned nothing; is there a `return`?"
    if is_parts(wanted):
        if not isinstance(given, tuple | list) or len(given) != len(wanted):
            return f"Expected {len(wanted)} values, as in `return a, b`; got {shown(given)}."
        return next((c for g, w in zip(given, wanted, strict=True) if (c := form(g, w))), None)
    if isinstance(wanted, str):
        return None if isinstance(given, str) else f"Expected a word, got {shown(given)}."
    if isinstance(wanted, bool):
        return None if isinstance(given, bool | np.bool_) else f"Expected True or False, got {shown(given)}."
    found = as_numbers(given)
    if found is None:
        return f"Expected numbers, got {shown(given)}."
    shape = np.shape(to_numpy(wanted))
    if found.shape != shape:
        expected = f"an array of shape {list(shape)}" if shape else "one number"
        got = f"shape {list(found.shape)}" if found.shape else "one number"
        return f"Expected {expected}, got {got}."
    if np.isnan(found).any() and not np.isnan(to_numpy(wanted)).any():
        return "It returned nan on some inputs: look for 0/0, inf - inf, or the log of a negative number."
    return None


def same(given: Any, wanted: Any, tolerance: float, exact: bool) -> bool:
    """Whether two answers agree: numbers within the tolerance, all else as they are."""
    if is_parts(wanted):
        return (
            isinstance(given, tuple | list)
            and len(given) == len(wanted)
            and all(same(g, w, tolerance, exact) for g, w in zip(given, wanted, strict=True))
        )
    if isinstance(wanted, str):
        return isinstance(given, str) and str(given) == wanted
    if isinstance(wanted, bool):
        return isinstance(given, bool | np.bool_) and bool(given) == wanted
    g, w = as_numbers(given), as_numbers(wanted)
    if g is None or w is None or g.shape != w.shape:
        return False
    if exact:
        return bool(np.array_equal(g, w, equal_nan=True))
    # relative to the largest entry, so that an exact 0 beside large numbers may be 1e-17
    finite = np.abs(w[np.isfinite(w)])
    scale = float(finite.max(initial=0.0))
    return bool(np.allclose(g, w, rtol=tolerance, atol=tolerance * scale + 1e-300, equal_nan=True))


def is_parts(wanted: Any) -> bool:
    """Whether a right answer is several values, and not a list that stands for an array."""
    return isinstance(wanted, tuple) or (isinstance(wanted, list) and any(isinstance(w, str) for w in wanted))


def as_numbers(value: Any) -> np.ndarray | None:
    """Any nesting of real numbers as an array; None for everything else, words that read like numbers among it."""
    try:
        found = np.asarray([as_numbers(v) for v in value] if holds_tensors(value) else to_numpy(value))
        return None if found.dtype.kind in "cSUmMV" else found.astype(np.float64)
    except Exception:  # an object of a learner's own may raise whatever it likes here
        return None


def holds_tensors(value: Any) -> bool:
    """Whether a value is a list of tensors, which NumPy does not take while they carry gradients."""
    return isinstance(value, tuple | list) and any(hasattr(v, "detach") for v in value)


def to_numpy(value: Any) -> Any:
    """A tensor as an array; everything else as it is."""
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()
    return (value.double() if value.is_floating_point() else value).numpy()  # NumPy has no bfloat16


def shown(value: Any) -> str:
    """A value in few characters."""
    try:
        return shortened(value)
    except Exception:  # a __repr__ that fails
        return f"a value of type {type(value).__name__}"


def shortened(value: Any) -> str:
    """A value in few characters, if it can be shown at all."""
    if isinstance(value, tuple):
        return "(" + ", ".join(map(shown, value)) + ")"
    value = to_numpy(value)
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        number = float(value)
        return f"{number:.6g}" if math.isfinite(number) else str(number)
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        text = np.array2string(value, precision=4, threshold=8, separator=", ").replace("\n", "")
    else:
        text = " ".join(repr(value).split())
    return text if len(text) <= 120 else text[:117] + "..."
