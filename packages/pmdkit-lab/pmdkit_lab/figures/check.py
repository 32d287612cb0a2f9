"""Compare the numbers of figures and tables with stored ones; `python -m pmdkit_lab.figures.check` stores them.

For every array, stored/expected.json keeps the shape and up to nine entries from first to last. This guards the
arithmetic against change; whether the arithmetic is right is for the tests to say.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pmdkit_lab.figures import FIGURES, TABLES, draw, table

EXPECTED = Path(__file__).parent / "stored" / "expected.json"
KEPT = 9


class Tolerance(NamedTuple):
    """|found - stored| <= absolute + relative |stored|, and the reason for these values."""

    relative: float
    absolute: float
    why: str


EXACT = Tolerance(1e-8, 1e-9, "the solvers have ten digits")
TOLERANCES = {
    "exact": EXACT,
    "paper": Tolerance(1e-8, 1e-9, "arithmetic on printed numbers"),
    "toy": Tolerance(1e-6, 1e-9, "arithmetic on stored curves of four digits"),
    "starter": Tolerance(1e-6, 1e-9, "arithmetic on stored curves of four digits"),
    "draws": Tolerance(1e-6, 1e-9, "the same draws; another NumPy may draw others"),
}
INTEGRATED = Tolerance(0.0, 1e-6, "an integrator that adapts its steps")  # arrays whose name starts with "flow"


def numbers(name: str) -> Mapping[str, np.ndarray]:
    """Recompute the arrays of a figure or a table."""
    return (draw(name) if name in FIGURES else table(name)).data


def digest(values: np.ndarray) -> dict[str, Any]:
    """Shape and entries of an array as JSON; None for NaN."""
    flat = np.asarray(values, dtype=np.float64).ravel()
    places = np.unique(np.linspace(0, len(flat) - 1, KEPT).round().astype(int))
    return {
        "shape": list(np.shape(values)),
        "values": [None if np.isnan(flat[i]) else float(f"{flat[i]:.12g}") for i in places],
    }


def tolerance(name: str, key: str) -> Tolerance:
    """How close an array must be to the stored one."""
    if key.startswith("flow"):
        return INTEGRATED
    return TOLERANCES[(FIGURES | TABLES)[name].source]


def compare(name: str, found: Mapping[str, np.ndarray], stored: Mapping[str, Any]) -> list[str]:
    """A sentence for every array that is off or missing; empty if everything is as stored."""
    wrong = [f"{name}: {key} is not among the stored numbers" for key in found if key not in stored]
    for key, expected in stored.items():
        if key not in found:
            wrong.append(f"{name}: {key} is stored and was not computed")
            continue
        own, near = digest(found[key]), tolerance(name, key)
        if own["shape"] != expected["shape"]:
            wrong.append(f"{name}: {key} has shape {own['shape']}; stored is {expected['shape']}")
            continue
        for first, second in zip(own["values"], expected["values"], strict=True):
            if first is None or second is None:
                if first is not second:
                    wrong.append(f"{name}: {key} is {first} where {second} is stored")
                    break
            elif not abs(first - second) <= near.absolute + near.relative * abs(second):
                wrong.append(
                    f"{name}: {key} is {first:.10g} where {second:.10g} is stored, tolerance {near.relative:g} "
                    f"relative, {near.absolute:g} absolute ({near.why})"
                )
                break
    return wrong


def check(name: str) -> list[str]:
    """What is wrong with one figure or table; see `compare`."""
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))
    if name not in expected:
        return [f"{name} has no stored numbers: python -m pmdkit_lab.figures.check writes them"]
    return compare(name, numbers(name), expected[name])


def write(names: Iterable[str]) -> None:
    """Store the numbers as they are computed now."""
    stored = {name: {key: digest(values) for key, values in numbers(name).items()} for name in names}
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in stored.items())
    EXPECTED.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")


if __name__ == "__main__":
    write([*FIGURES, *TABLES])
