"""The runs of a sweep's record by setting, and their numbers as arrays."""

from collections.abc import Mapping
from typing import Any

import numpy as np

Runs = list[dict[str, Any]]
Array = np.ndarray


def by_setting(record: Mapping[str, Any]) -> dict[str, Runs]:
    """The finished runs of each setting, in the order of their seeds."""
    found = {}
    for label, options in record["settings"].items():
        narrower = [other for other in record["settings"].values() if options.items() < other.items()]
        runs = [
            run
            for run in record["runs"]
            if run["state"] == "finished"
            and options.items() <= run["options"].items()
            and not any(other.items() <= run["options"].items() for other in narrower)
        ]
        found[label] = sorted(runs, key=lambda run: int(run["seed"]))
    return found


def summary_values(runs: Runs, metric: str) -> Array:
    """[seeds] values of a number in the summary."""
    return np.array([run["summary"][metric] for run in runs], dtype=np.float64)
