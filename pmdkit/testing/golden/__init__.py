"""Golden vectors: recorded losses and gradients that every implementation of an objective has to give.

`vectors.json` holds the cases, docs/use/golden.md the protocol; another framework needs these two alone. Here they are
run through the paths of pmdkit, and through a function of your own.
"""

import json
from importlib.resources import files
from typing import Any

from pmdkit.errors import UsageError
from pmdkit.testing.golden.case import Case
from pmdkit.testing.golden.paths import PATHS, Path, missing

__all__ = ["PATHS", "TOLERANCE", "absent", "cases", "check_parity", "errors", "from_file", "off", "parity"]

TOLERANCE = 1e-6


def cases() -> list[Case]:
    """The recorded cases."""
    text = files("pmdkit.testing.golden").joinpath("vectors.json").read_text(encoding="utf-8")
    found: list[Case] = json.loads(text)["cases"]
    return found


def parity() -> dict[str, dict[str, Any]]:
    """For each path that is installed: `max_error` of an entry of loss or gradient, and how many `cases` it ran."""
    table = {}
    for name, path in PATHS.items():
        if not missing(name):
            found = list(errors(path).values())
            table[name] = {"max_error": max(found), "cases": len(found)}
    return table


def absent() -> dict[str, str]:
    """The paths that are not installed here, with what they lack."""
    return {name: lacks for name in PATHS if (lacks := missing(name))}


def errors(path: Path) -> dict[str, float]:
    """The largest error of every case that a path runs, by the case's name."""
    return {case["name"]: off(*result, case) for case in cases() if (result := path(case)) is not None}


def off(loss: float | list[float], gradient: list[list[float]], case: Case) -> float:
    """The largest error of an entry of loss or gradient; NaN counts as infinite."""
    losses = [loss] if isinstance(loss, float) else loss
    pairs = list(zip(losses, case["loss"], strict=True))
    for mine, wanted in zip(gradient, case["gradient"], strict=True):
        pairs += zip(mine, wanted, strict=True)
    return max(abs(a - b) if a == a else float("inf") for a, b in pairs)


def check_parity(function: Path) -> dict[str, Any]:
    """Run the golden vectors through a loss of your own.

    Args:
        function: takes a case as docs/use/golden.md describes it; returns loss (a number, or one per ministep) and
            gradient [P * G][T_n] by logp, or None for a case that it is not meant for.

    Returns:
        `max_error` and `cases`, how many were run.

    Raises:
        AssertionError: an entry is off by more than TOLERANCE, with the name of the case; or no case was run.
    """
    found = errors(function)
    assert found, "the function returned None for every case; expected loss and gradient for some"
    worst = max(found, key=lambda name: found[name])
    agree = sum(error <= TOLERANCE for error in found.values())
    assert found[worst] <= TOLERANCE, (
        f"case '{worst}' is off by {found[worst]:.1e}, more than {TOLERANCE:g}; {agree} of {len(found)} cases agree: "
        "compare your advantage with the case's, then your weights"
    )
    return {"max_error": found[worst], "cases": len(found)}


def from_file(place: str) -> Path:
    """The function that `my.py:loss` names."""
    from pathlib import Path as File

    from pmdkit.from_path import module_from_file

    file, _, name = place.rpartition(":")
    if not file or not name.isidentifier():
        raise UsageError(f"'{place}' names no function; expected a file and a function in it, such as my.py:loss")
    found = getattr(module_from_file(File(file)), name, None)
    if not callable(found):
        raise UsageError(f"{file} has no function {name}; docs/use/golden.md says what it is given and returns")
    function: Path = found
    return function
