"""The protocol of the study of adaptive temperatures, written before any of its runs: arms, cells, seeds, the verdict.

Every arm gets the same number of values to be tuned over, on the same seeds, by the area under the curve. Then each
runs at its best value on fresh seeds, paired with the tuned fixed tau.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pmdkit.stats import holm, mean_interval, paired_difference, paired_p_value

Tau = float | dict[str, Any]
Options = dict[str, Any]

FIXED = "fixed"
"The arm that the others are compared with."
TUNING = 1000
"First seed of the tuning runs; those of the comparison count from 0."


def rule(name: str, key: str, values: tuple[float, ...], **more: Any) -> tuple[Tau, ...]:
    """One rule at several values of one option."""
    return tuple({"rule": name, key: value, **more} for value in values)


SCALES = (0.05, 0.15, 0.5, 1.5)  # tau of FIXED_TAUS at a pass rate of 0.2
FIXED_TAUS: tuple[Tau, ...] = (0.01, 0.03, 0.1, 0.3)
SUGGESTED: tuple[Tau, ...] = rule("pass-rate", "scale", (0.14,), floor=0.1)
ARMS: dict[str, tuple[Tau, ...]] = {
    FIXED: FIXED_TAUS,
    "pass-rate": rule("pass-rate", "scale", SCALES, floor=0.1),
    "pass-rate, pooled": rule("pass-rate", "scale", SCALES, floor=0.01, estimate="pool"),
    "contraction": rule("contraction", "eta", (0.9999, 0.99, 0.9, 0.6)),
    "kl-budget": rule("kl-budget", "budget", (6.0, 4.0, 2.0, 0.7)),
    "chi2-budget": rule("chi2-budget", "budget", (100.0, 30.0, 10.0, 3.0)),
    "pass-rate 0.14, untuned": SUGGESTED,
}
# moved after a first comparison, which had most arms of pmd-part and of the toy tasks at the end of the grids above
GENTLER: dict[str, tuple[Tau, ...]] = {
    FIXED: (0.1, 0.3, 1.0, 3.0),
    "pass-rate": rule("pass-rate", "scale", (0.5, 1.5, 5.0, 15.0), floor=0.1),
    "pass-rate, pooled": rule("pass-rate", "scale", (0.5, 1.5, 5.0, 15.0), floor=0.01, estimate="pool"),
    "contraction": rule("contraction", "eta", (0.9, 0.6, 0.3, 0.1)),
    "kl-budget": rule("kl-budget", "budget", (2.0, 0.7, 0.25, 0.08)),
    "chi2-budget": rule("chi2-budget", "budget", (10.0, 3.0, 1.0, 0.3)),
    "pass-rate 0.14, untuned": SUGGESTED,
}


@dataclass(frozen=True)
class StudyCell:
    """One setting in which all arms are compared.

    Attributes:
        tier, env: as on the command line.
        objective: "pmd-mean" or "pmd-part".
        options: of all runs.
        seeds: of the comparison.
        tuning: seeds of the tuning.
        arms: name to the values it is tuned over.
        block: steps that are averaged before a drop is looked for; 1 where pass rates are exact.
    """

    tier: str
    env: str
    objective: str
    options: Options
    seeds: int
    tuning: int
    arms: dict[str, tuple[Tau, ...]] = field(default_factory=lambda: ARMS)
    block: int = 1


POOL: Options = {
    # 16 prompts of pass rates 0.7 to 0.005 under one log-linear policy of 128 weights, without traps
    "env.arms": 400,
    "env.dim": 128,
    "env.traps": 0,
    "env.easy": 0.7,
    "env.hard": 0.005,
    "schedule.steps": 12,
    "schedule.group": 16,
    "schedule.passes": 50,  # towards the minimum of each step's loss: tau acts far from pi_old
    "schedule.lr": 0.05,
}
NOISE: Options = {"env.false_positive": 0.05, "env.false_negative": 0.05}
TOY: Options = {
    "model.dimension": 64,
    "model.heads": 2,
    "schedule.steps": 60,
    "schedule.prompts": 64,
    "schedule.group": 16,
    "schedule.ministeps": 16,  # as in the paper
    "schedule.lr": 1e-4,
}
STARTER: Options = {"schedule.steps": 40, "schedule.ministeps": 8, "run.checkpoint_every": 20, "run.keep": 1}
# in the toy tier runs take longer: without the variant of one rule and the twin of another
FEWER = {arm: values for arm, values in GENTLER.items() if arm not in ("pass-rate, pooled", "chi2-budget")}
THREE: dict[str, tuple[Tau, ...]] = {
    FIXED: (0.02, 0.1, 0.5),
    "pass-rate": rule("pass-rate", "scale", (0.1, 0.5, 2.5), floor=0.1),
    "contraction": rule("contraction", "eta", (0.99, 0.9, 0.5)),
}

CELLS: dict[str, dict[str, StudyCell]] = {
    "bandit": {
        f"{objective}{', 5 % verifier errors' if noise else ''}": StudyCell(
            "bandit", "shared-features", objective, POOL | noise, 30, 5, arms
        )
        for objective, arms in (("pmd-mean", ARMS), ("pmd-part", GENTLER))
        for noise in ({}, NOISE)
    },
    "toy": {
        f"{task}, pmd-mean": StudyCell("toy", task, "pmd-mean", TOY, 10, 2, arms=FEWER, block=5)
        for task in ("sort", "maze")
    },
    "starter": {
        "starter, pmd-mean": StudyCell("llm", "starter", "pmd-mean", STARTER, 3, 1, arms=THREE, block=5),
    },
}
ABOUT = (
    "Adaptive tau against a fixed one. Primary: area under the curve of the pass rate, paired by seed with the tuned "
    "fixed tau; intervals at 95 %, p-values by Holm over the arms of a cell. Secondary: final pass rate, worst drop "
    "from one step (bandit) or block of five steps (toy, starter) to the next, dead prompts: in the bandit those that "
    "end below a pass rate of 0.05, elsewhere those without a right response in the last fifth of the steps. The grids "
    "of pmd-part and of the toy tasks were moved to gentler steps after a first comparison ended at their edge. A rule "
    "is recommended only if it gains under pmd-mean in the bandit without errors and in one more cell of pmd-mean, and "
    "loses in none of them."
)


# The verdict: every arm against the fixed tau, seed by seed, and which rules pass the stated test.

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
            gain = paired_difference(other, own).difference
            entry[f"{measure}_gain"] = {"mean": gain.mean, "low": gain.low, "high": gain.high}
    if arm != FIXED:
        first, second = (np.array([run["auc"] for run in rows], dtype=float) for rows in (runs, fixed))
        entry["p"] = paired_p_value(first, second)
    return entry


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
