"""Golden vectors: recorded losses and gradients that every implementation of an objective has to give.

`vectors.json` holds the protocol in its `about` and the cases; another framework needs that file alone. Here it is run
through the paths of pmdkit.
"""

import json
from importlib.resources import files
from typing import Any

from pmdkit.testing.golden.paths import PATHS, Case, Skipped

TOLERANCE = 1e-6


def cases() -> list[Case]:
    """The recorded cases."""
    text = files("pmdkit.testing.golden").joinpath("vectors.json").read_text(encoding="utf-8")
    found: list[Case] = json.loads(text)["cases"]
    return found


def parity() -> dict[str, dict[str, Any]]:
    """For each path that is installed: the largest error of a loss or gradient entry, and how many cases it ran."""
    table: dict[str, dict[str, Any]] = {}
    for name, path in PATHS.items():
        errors = []
        for case in cases():
            try:
                loss, gradient = path(case)
            except Skipped:
                continue
            errors.append(abs(loss - case["loss"]))
            rows = zip(gradient, case["gradient"], strict=True)
            errors += [abs(a - b) for mine, wanted in rows for a, b in zip(mine, wanted, strict=True)]
            table[name] = {"max_error": max(errors), "cases": table.get(name, {"cases": 0})["cases"] + 1}
    return table
