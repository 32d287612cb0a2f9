"""The study of adaptive temperatures: tables of its records, the test stated beforehand, and single runs.

The records in benchmarks/results have the protocol too: the cells, the values that every arm was tuned over, and what
was stated before the runs.
"""

from typing import Any

import numpy as np
import torch

from pmdkit import stats
from pmdkit.resolve import resolve
from pmdkit_lab.studies import paired_tests
from pmdkit_lab.studies.journal import Outcome
from pmdkit_lab.studies.local_run import local_run

FIXED = "fixed"
"The arm that the others are compared with."
MEASURES = ("auc", "final", "drop", "dead")
SURE = 0.05

Row = dict[str, Any]


def tables(runs: list[Row]) -> dict[str, list[Row]]:
    """cell -> a row per arm: mean of every measure with its interval, and the differences to the fixed tau.

    Args:
        runs: cell, arm, seed and MEASURES of each run of the comparison.

    An arm whose runs equal those of an earlier arm names that arm as its `twin`, has no p-value and is left out of
    Holm's correction.
    """
    found: dict[str, list[Row]] = {}
    for cell in dict.fromkeys(each["cell"] for each in runs):
        members = [each for each in runs if each["cell"] == cell]
        arms = list(dict.fromkeys(each["arm"] for each in members))
        values = {arm: sorted((r for r in members if r["arm"] == arm), key=lambda r: int(r["seed"])) for arm in arms}
        rows = [row(arm, values[arm], values[FIXED]) for arm in arms]
        seen = {arm: [[run[key] for key in ("seed", *MEASURES)] for run in values[arm]] for arm in arms}
        for place, entry in enumerate(rows):
            entry["twin"] = next((arm for arm in arms[1:place] if seen[arm] == seen[entry["arm"]]), None)
        own = [entry for entry in rows[1:] if entry["twin"] is None]  # the same comparison counts once
        for entry, p in zip(own, paired_tests.holm([entry["p"] for entry in own]), strict=True):
            entry["p"] = p
        for entry in rows:
            entry["p"] = None if entry["twin"] else entry["p"]
        found[cell] = rows
    return found


def row(arm: str, runs: list[Row], fixed: list[Row]) -> Row:
    """Means of one arm, and its differences to the fixed tau unless it is the fixed tau."""
    entry: Row = {"arm": arm, "seeds": len(runs), "p": None}
    for measure in MEASURES:
        own, other = (np.array([run[measure] for run in rows], dtype=float) for rows in (runs, fixed))
        entry[measure] = ends(stats.mean_interval(own))
        if arm != FIXED:
            entry[f"{measure}_gain"] = ends(stats.paired_difference(other, own).difference)
            if measure == "auc":
                entry["p"] = paired_tests.paired_p_value(own, other)
    return entry


def ends(interval: stats.MeanInterval) -> Row:
    """A mean and its interval as JSON."""
    return {"mean": interval.mean, "low": interval.low, "high": interval.high}


def gains(entry: Row) -> bool:
    """Whether an arm is better than the fixed tau beyond chance."""
    return entry["p"] is not None and entry["p"] < SURE and entry["auc_gain"]["mean"] > 0


def loses(entry: Row) -> bool:
    """Whether an arm is worse than the fixed tau beyond chance."""
    return entry["p"] is not None and entry["p"] < SURE and entry["auc_gain"]["mean"] < 0


def recommended(found: dict[str, list[Row]], objectives: dict[str, str]) -> list[str]:
    """Arms that pass the test stated in the protocol.

    Args:
        found: tables of all tiers together.
        objectives: cell -> objective.
    """
    main = "pmd-mean"  # the cell that must show a gain: the bandit without errors
    cells = [cell for cell, objective in objectives.items() if objective == "pmd-mean" and cell in found]
    arms = [entry["arm"] for entry in found[main] if entry["arm"] != FIXED]
    passed = []
    for arm in arms:
        entries = {cell: entry for cell in cells for entry in found[cell] if entry["arm"] == arm}
        elsewhere = any(gains(entry) for cell, entry in entries.items() if cell != main)
        if gains(entries[main]) and elsewhere and not any(loses(entry) for entry in entries.values()):
            passed.append(arm)
    return passed


def run_job(cell: Row, tau: float | dict[str, Any], seed: int) -> Outcome:
    """Area under the curve, final pass rate, worst drop, dead prompts and the curve of one run of the bandit.

    Args:
        cell: the setting, as the record has it: tier, env, objective and options.
        tau: a number or the table of a rule.
        seed: of the problem and of the draws.
    """
    torch.set_num_threads(1)
    own = {"objective.name": cell["objective"], "objective.tau": tau, "run.seed": seed, "env.seed": seed}
    found = local_run(*resolve(cell["tier"], cell["env"], {**cell["options"], **own}))
    assert found.final is not None
    assert found.dead is not None
    return outcome(np.array(found.rates), found.final, found.dead, 1, found.before)


def outcome(curve: np.ndarray, final: float, dead: float, block: int, before: float | None = None) -> Outcome:
    """The values of a run that the record keeps.

    Args:
        curve: [steps] pass rates.
        final: pass rate of the policy after the last step.
        dead: share of dead prompts.
        block: steps averaged before drops are measured.
        before: pass rate before the first step, if it is exact.
    """
    means = curve[: len(curve) // block * block].reshape(-1, block).mean(1)
    means = means if before is None else np.concatenate([[before], means])
    return {
        "auc": float(curve.mean()),
        "final": final,
        "drop": float(max(0.0, (means[:-1] - means[1:]).max())),
        "dead": dead,
        "curve": [round(float(x), 4) for x in means],
    }
