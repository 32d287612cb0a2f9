"""Reads the runs of the study: every arm against the fixed tau, seed by seed, and which rules pass the stated test."""

from typing import Any

import numpy as np
from scipy.stats import ttest_rel

from pmdkit.sweeps.adaptive.protocol import FIXED
from pmdkit.sweeps.statistics import mean_interval, paired

MEASURES = ("auc", "final", "drop", "dead")
SURE = 0.05

Row = dict[str, Any]


def tables(runs: list[Row]) -> dict[str, list[Row]]:
    """cell -> a row per arm: mean of every measure with its interval, and the differences to the fixed tau.

    Args:
        runs: cell, arm, seed and MEASURES of each run of the comparison.
    """
    found: dict[str, list[Row]] = {}
    for cell in dict.fromkeys(run["cell"] for run in runs):
        members = [run for run in runs if run["cell"] == cell]
        arms = list(dict.fromkeys(run["arm"] for run in members))
        values = {arm: sorted((r for r in members if r["arm"] == arm), key=lambda r: int(r["seed"])) for arm in arms}
        rows = [row(arm, values[arm], values[FIXED]) for arm in arms]
        for entry, p in zip(rows[1:], holm([entry["p"] for entry in rows[1:]]), strict=True):
            entry["p"] = p
        found[cell] = rows
    return found


def row(arm: str, runs: list[Row], fixed: list[Row]) -> Row:
    """Means of one arm, and its differences to the fixed tau where it is not that itself."""
    entry: Row = {"arm": arm, "seeds": len(runs), "p": None}
    for measure in MEASURES:
        own, other = (np.array([run[measure] for run in rows], dtype=float) for rows in (runs, fixed))
        mean = mean_interval(own)
        entry[measure] = {"mean": mean.mean, "low": mean.low, "high": mean.high}
        if arm != FIXED:
            gain = paired(other, own).difference
            entry[f"{measure}_gain"] = {"mean": gain.mean, "low": gain.low, "high": gain.high}
    if arm != FIXED:
        first, second = (np.array([run["auc"] for run in rows], dtype=float) for rows in (runs, fixed))
        same = bool(np.allclose(first, second, atol=1e-12, rtol=0))
        entry["p"] = 1.0 if same else float(ttest_rel(first, second).pvalue)
    return entry


def holm(p_values: list[float]) -> list[float]:
    """Adjusted p-values by Holm's step-down procedure: at most 5 % chance of any false gain in a cell."""
    order = np.argsort(p_values)
    adjusted = np.empty(len(p_values))
    worst = 0.0
    for place, index in enumerate(order):
        worst = max(worst, min(1.0, (len(p_values) - place) * p_values[index]))
        adjusted[index] = worst
    return [float(p) for p in adjusted]


def gains(entry: Row) -> bool:
    """Whether an arm is better than the fixed tau beyond chance."""
    return entry["p"] is not None and entry["p"] < SURE and entry["auc_gain"]["mean"] > 0


def loses(entry: Row) -> bool:
    """Whether it is worse."""
    return entry["p"] is not None and entry["p"] < SURE and entry["auc_gain"]["mean"] < 0


def recommended(found: dict[str, list[Row]], objectives: dict[str, str], main: str = "pmd-mean") -> list[str]:
    """Arms that pass the test stated in the protocol.

    Args:
        found: tables of all tiers together.
        objectives: cell -> objective.
        main: the cell that must show a gain, that of the bandit without errors.
    """
    cells = [cell for cell, objective in objectives.items() if objective == "pmd-mean" and cell in found]
    arms = [entry["arm"] for entry in found[main] if entry["arm"] != FIXED]
    passed = []
    for arm in arms:
        entries = {cell: entry for cell in cells for entry in found[cell] if entry["arm"] == arm}
        elsewhere = any(gains(entry) for cell, entry in entries.items() if cell != main)
        if gains(entries[main]) and elsewhere and not any(loses(entry) for entry in entries.values()):
            passed.append(arm)
    return passed
