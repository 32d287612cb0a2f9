"""Compare answers: check the form of an answer, tell whether two agree, and show or paste a value."""

import numbers
import re
from collections.abc import Sequence
from typing import Any

import numpy as np

ADDRESS = re.compile(r" at 0x[0-9a-f]+")
"In the text of an object: another in every run, and a verdict depends on files and seed alone."


def form(given: Any, wanted: Any) -> str | None:
    """The fault in an answer's form, whatever its value: type, shape or NaN; None if the form is right."""
    if given is ...:
        return "It answers on some inputs only; expected an answer for every input."
    if given is None:
        return "It returned nothing; is there a `return`?"
    if is_parts(wanted):
        parts = as_parts(given)
        if parts is None or len(parts) != len(wanted):
            return f"Expected {len(wanted)} values, as in `return a, b`; got {shown(given)}."
        return next((c for g, w in zip(parts, wanted, strict=True) if (c := form(g, w))), None)
    if isinstance(wanted, str):
        return None if isinstance(given, str) else f"Expected a word, got {shown(given)}."
    if isinstance(wanted, bool):
        return None if as_bool(given) is not None else f"Expected True or False, got {shown(given)}."
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


def same(given: Any, wanted: Any, tolerance: float, exact: bool, zero: float = 0.0) -> bool:
    """Whether two answers agree: numbers within the tolerance, everything else exactly."""
    if is_parts(wanted):
        parts = as_parts(given)
        return (
            parts is not None
            and len(parts) == len(wanted)
            and all(same(g, w, tolerance, exact, zero) for g, w in zip(parts, wanted, strict=True))
        )
    if isinstance(wanted, str):
        return isinstance(given, str) and str(given) == wanted
    if isinstance(wanted, bool):
        return as_bool(given) is wanted
    g, w = as_numbers(given), as_numbers(wanted)
    if g is None or w is None or g.shape != w.shape:
        return False
    if exact:
        return bool(np.array_equal(g, w, equal_nan=True))
    # relative to the largest entry, so that an exact 0 beside large numbers may be 1e-17
    finite = np.abs(w[np.isfinite(w)])
    scale = float(finite.max(initial=0.0))
    return bool(np.allclose(g, w, rtol=tolerance, atol=max(tolerance * scale, zero, 1e-300), equal_nan=True))


def is_parts(wanted: Any) -> bool:
    """Whether a right answer consists of several values, rather than a list that stands for an array."""
    return isinstance(wanted, tuple) or (isinstance(wanted, list) and any(isinstance(w, str) for w in wanted))


def as_parts(value: Any) -> Sequence[Any] | None:
    """Several values in any container: a tuple, a list, an array or a tensor; None for a single value."""
    if isinstance(value, tuple | list):
        return value
    try:
        array = to_numpy(value)
    except Exception:  # a learner's own object may raise anything here
        return None
    return list(array) if isinstance(array, np.ndarray) and array.ndim else None


def as_bool(value: Any) -> bool | None:
    """True or False from Python, NumPy or torch; None for everything else."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    try:
        array = to_numpy(value)
    except Exception:  # as above
        return None
    return bool(array) if isinstance(array, np.ndarray) and array.dtype == bool and array.ndim == 0 else None


def as_numbers(value: Any) -> np.ndarray | None:
    """Any nesting of real numbers as an array; None for everything else, including strings that look like numbers."""
    try:
        if isinstance(value, tuple | list) and any(hasattr(v, "detach") for v in value):
            value = [as_numbers(v) for v in value]  # NumPy does not take tensors that carry gradients
        found = np.asarray(to_numpy(value))
        return None if found.dtype.kind in "cSUmMV" else found.astype(np.float64)
    except Exception:  # a learner's own object may raise anything here
        return None


def to_numpy(value: Any) -> Any:
    """A tensor as an array; everything else as it is."""
    if not hasattr(value, "detach"):
        return value
    value = value.detach().cpu()
    return (value.double() if value.is_floating_point() else value).numpy()  # NumPy has no bfloat16


def shown(value: Any) -> str:
    """A value as short text."""
    try:
        if isinstance(value, tuple):
            return "(" + ", ".join(map(shown, value)) + ")"
        plain = to_numpy(value)
        if isinstance(plain, numbers.Real) and not isinstance(plain, bool):
            number = float(plain)
            return f"{number:.6g}" if np.isfinite(number) else str(number)
        if isinstance(plain, np.ndarray) and plain.dtype.kind in "fiub":
            text = np.array2string(plain, precision=4, threshold=8, separator=", ").replace("\n", "")
        else:
            text = ADDRESS.sub("", " ".join(repr(plain).split()))
        return text if len(text) <= 120 else text[:117] + "..."
    except Exception:  # a __repr__ that fails
        return f"a value of type {type(value).__name__}"


def pasted(value: Any) -> str:
    """A value as Python code that reproduces it to the last bit, with `np` and `torch` for NumPy and PyTorch."""
    if isinstance(value, tuple | list):
        inside = ", ".join(map(pasted, value))
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if hasattr(value, "detach"):
        return f"torch.tensor({listed(to_numpy(value))}, dtype={value.dtype})".replace("nan", "float('nan')").replace(
            "inf", "float('inf')"
        )
    if isinstance(value, np.ndarray):
        kind = "" if value.dtype in (np.dtype(float), np.dtype(int), np.dtype(bool)) else f", dtype=np.{value.dtype}"
        return f"np.array({listed(value)}{kind})".replace("nan", "np.nan").replace("inf", "np.inf")
    if isinstance(value, np.generic):
        return pasted(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return f"float('{value}')"
    return repr(value)


def listed(array: np.ndarray) -> str:
    """The entries of an array as nested lists."""
    return repr(array.tolist())
