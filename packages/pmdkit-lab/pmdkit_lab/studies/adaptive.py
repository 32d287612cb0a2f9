"""The study of adaptive temperatures: its protocol, written before any of its runs; the runs; the verdict.

Every arm is tuned over the same number of values, on the same seeds, by the area under the curve. Then each arm runs at
its best value on fresh seeds, paired with the tuned fixed tau. Each run is stored as soon as it ends, so that a stopped
study continues where it was.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pmdkit import stats
from pmdkit.calls import Call
from pmdkit.launchers import ONE, Launcher
from pmdkit.observe import files
from pmdkit.resolve import resolve
from pmdkit.start import train
from pmdkit.sweeps import record
from pmdkit_lab.studies import paired_tests
from pmdkit_lab.studies.journal import Outcome, journal, make_runs
from pmdkit_lab.studies.local_run import LAST, local_run

Tau = float | dict[str, Any]
Options = dict[str, Any]

FIXED = "fixed"
"The arm that the others are compared with."
TUNING = 1000
"First seed of the tuning runs; seeds of the comparison start at 0."


def rule(name: str, key: str, values: tuple[float, ...], **more: Any) -> tuple[Tau, ...]:
    """One rule at several values of one option."""
    return tuple({"rule": name, key: value, **more} for value in values)


SCALES = (0.05, 0.15, 0.5, 1.5)  # give the values of FIXED_TAUS at a pass rate of 0.2
FIXED_TAUS: tuple[Tau, ...] = (0.01, 0.03, 0.1, 0.3)
SUGGESTED: tuple[Tau, ...] = rule("pass-rate", "scale", (0.14,), floor=0.1)
ARMS: dict[str, tuple[Tau, ...]] = {
    FIXED: FIXED_TAUS,
    "pass-rate": rule("pass-rate", "scale", SCALES, floor=0.1),
    "pass-rate, pooled": rule("pass-rate", "scale", SCALES, floor=0.01, estimate="pool"),
    "contraction": rule("contraction", "eta", (0.9999, 0.99, 0.9, 0.6)),
    "kl-budget": rule("kl-budget", "budget", (2.0, 1.4, 1.0, 0.7)),
    "chi2-budget": rule("chi2-budget", "budget", (30.0, 17.0, 10.0, 3.0)),
    "pass-rate 0.14, untuned": SUGGESTED,
}
# A budget that no pass rate of the pool can exhaust makes a rule identical to `contraction` at its `most`: KL budgets
# of 4 and 6 and a chi2 budget of 100 did. They were in the grid of the stored runs; `tables` counts such twins once.
# The grids below were moved after a first comparison, in which most arms of pmd-part and of the toy tasks were best at
# the edge of the grids above.
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
        options: options of all runs.
        seeds: number of seeds of the comparison.
        tuning: number of seeds of the tuning.
        arms: the values that each arm, by name, is tuned over.
        block: steps that are averaged before drops are measured; 1 if pass rates are exact.
        first: first seed of the comparison; a follow-up takes seeds that no choice was based on.
    """

    tier: str
    env: str
    objective: str
    options: Options
    seeds: int
    tuning: int
    arms: dict[str, tuple[Tau, ...]] = field(default_factory=lambda: ARMS)
    block: int = 1
    first: int = 0


POOL: Options = {
    # 16 prompts with pass rates from 0.7 to 0.005 under one log-linear policy of 128 weights, without traps
    "env.arms": 400,
    "env.dim": 128,
    "env.traps": 0,
    "env.easy": 0.7,
    "env.hard": 0.005,
    "schedule.steps": 12,
    "schedule.group": 16,
    "schedule.passes": 50,  # close to the minimum of each step's loss: tau matters far from pi_old
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
# toy runs take longer, so one rule's variant and another rule's twin are left out
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


# The verdict: every arm against the fixed tau, seed by seed, and the rules that pass the stated test.

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
        for place, entry in enumerate(rows):
            entry["twin"] = next((a for a in arms[1:place] if same_runs(values[a], values[entry["arm"]])), None)
        own = [entry for entry in rows[1:] if entry["twin"] is None]  # the same comparison counts once
        for entry, p in zip(own, paired_tests.holm([entry["p"] for entry in own]), strict=True):
            entry["p"] = p
        for entry in rows:
            entry["p"] = None if entry["twin"] else entry["p"]
        found[cell] = rows
    return found


def same_runs(first: list[Row], second: list[Row]) -> bool:
    """Whether two arms have identical runs: one rule under two names."""
    return [[run[key] for key in ("seed", *MEASURES)] for run in first] == [
        [run[key] for key in ("seed", *MEASURES)] for run in second
    ]


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


@dataclass(frozen=True)
class Job:
    """One run to make: the name of a cell, an arm, a value of the arm, and a seed."""

    cell: str
    arm: str
    tau: Tau
    seed: int

    @property
    def key(self) -> str:
        """Identifies the run in the journal."""
        return json.dumps([self.cell, self.arm, self.tau, self.seed], sort_keys=True)

    def __str__(self) -> str:
        return f"{self.cell}, {self.arm}, seed {self.seed}"


def study(
    tier: str,
    out: Path,
    *,
    launcher: Launcher = ONE,
    resume: bool = False,
    log: Callable[[str], None] = lambda sentence: None,
    cells: dict[str, StudyCell] | None = None,
) -> dict[str, Any]:
    """Run one tier of the study in `out` and write OUT/adaptive-tau-TIER.json.

    Args:
        tier: "bandit", "toy" or "starter".
        out: new or empty, or with `resume` the folder of a started study.
        launcher: where the runs are made, and how many at a time.
        resume: keep the runs in the journal.
        log: called with a sentence about each step of the work.
        cells: cells by name, in place of those of the protocol.
    """
    chosen = CELLS[tier] if cells is None else cells

    def call_of(job: Job) -> Call:
        return job_call(job, chosen[job.cell], out)

    with journal(out, resume) as done:
        make_runs(tuning(chosen), call_of, done, out, launcher, log)
        best = tuned(chosen, done)
        make_runs(comparison(chosen, best), call_of, done, out, launcher, log)
        result = summary(chosen, best, done)
        files.replace(out / f"adaptive-tau-{tier}.json", (json.dumps(result, separators=(",", ":")) + "\n").encode())
    return result


def tuning(cells: dict[str, StudyCell]) -> list[Job]:
    """Jobs of the first half: every value of every arm that has more than one, on the tuning seeds."""
    return [
        Job(name, arm, tau, TUNING + seed)
        for name, cell in cells.items()
        for seed in range(cell.tuning)
        for arm, values in cell.arms.items()
        if len(values) > 1
        for tau in values
    ]


def tuned(cells: dict[str, StudyCell], done: dict[str, Outcome]) -> dict[str, dict[str, Tau]]:
    """cell -> arm -> the value with the largest mean area under the curve."""
    best: dict[str, dict[str, Tau]] = {}
    for name, cell in cells.items():
        best[name] = {}
        for arm, values in cell.arms.items():
            seeds = range(TUNING, TUNING + cell.tuning) if len(values) > 1 else ()
            scores = [sum(done[Job(name, arm, tau, seed).key]["auc"] for seed in seeds) for tau in values]
            best[name][arm] = values[scores.index(max(scores))]
    return best


def comparison(cells: dict[str, StudyCell], best: dict[str, dict[str, Tau]]) -> list[Job]:
    """Jobs of the second half: every arm at its best value, on fresh seeds."""
    return [
        Job(name, arm, best[name][arm], seed)
        for name, cell in cells.items()
        for seed in range(cell.first, cell.first + cell.seeds)
        for arm in cell.arms
    ]


def job_call(job: Job, cell: StudyCell, out: Path) -> Call:
    """The call of `make_job` for a job; its arguments are all that it needs."""
    name = hashlib.sha256(job.key.encode()).hexdigest()[:16]
    place = out / "runs" / f"{job.arm.replace(' ', '-').replace(',', '')}-{name[:8]}"
    kept = {key: value for key, value in vars(cell).items() if key not in ("arms", "seeds", "tuning")}
    arguments = {"cell": kept, "tau": job.tau, "seed": job.seed, "folder": str(place)}
    return Call(name, "pmdkit_lab.studies.adaptive:make_job", arguments)


def make_job(cell: dict[str, Any], tau: Tau, seed: int, folder: str) -> Outcome:
    """`run_job` with arguments from JSON."""
    return run_job(StudyCell(**cell, seeds=1, tuning=1), tau, seed, Path(folder))


def summary(cells: dict[str, StudyCell], best: dict[str, dict[str, Tau]], done: dict[str, Outcome]) -> dict[str, Any]:
    """The record of the study: means of the tuning, the comparison run by run, and the tables made from it."""
    runs = [
        {"cell": job.cell, "arm": job.arm, "seed": job.seed, **record.rounded(done[job.key])}
        for job in comparison(cells, best)
    ]
    tuning_means = [
        {
            "cell": name,
            "arm": arm,
            "tau": tau,
            "auc": record.rounded(
                sum(done[Job(name, arm, tau, TUNING + s).key]["auc"] for s in range(cell.tuning)) / cell.tuning
            ),
        }
        for name, cell in cells.items()
        for arm, values in cell.arms.items()
        if len(values) > 1
        for tau in values
    ]
    settings = {
        name: {"tier": cell.tier, "env": cell.env, "objective": cell.objective, "options": cell.options}
        for name, cell in cells.items()
    }
    return {
        "format": 1,
        "about": ABOUT,
        "cells": settings,
        "tuning": tuning_means,
        "best": best,
        "runs": runs,
        "tables": record.rounded(tables(runs)),
    }


# One run, by tier, and what is kept from it.


def run_job(cell: StudyCell, tau: Tau, seed: int, folder: Path) -> Outcome:
    """Area under the curve, final pass rate, worst drop, dead prompts and the curve of one run.

    Args:
        cell: the setting.
        tau: a number or the table of a rule.
        seed: seed of prompts, draws and weights; in the bandit also of the problem.
        folder: folder of a language model's run, which is resumed there after an interruption; other runs take seconds
            and are not written.
    """
    torch.set_num_threads(1)
    options = {**cell.options, "objective.name": cell.objective, "objective.tau": tau, "run.seed": seed}
    if cell.tier == "llm":
        return llm_run(cell, options, folder)
    if cell.tier == "bandit":
        options["env.seed"] = seed
    found = local_run(*resolve(cell.tier, cell.env, options))
    assert found.final is not None
    return outcome(np.array(found.rates), found.final, found.dead, cell.block, found.before)


def llm_run(cell: StudyCell, options: dict[str, Any], folder: Path) -> Outcome:
    """Train a language model in a run folder, resumed where it stopped."""
    finished = train(cell.objective, cell.tier, cell.env, out=folder, resume=True, options=options)
    rows = finished.metrics
    gauges = [bucket for row in rows[-len(rows) // LAST :] for bucket in row["gauge"] or []]
    prompts = sum(bucket["prompts"] for bucket in gauges)
    # the lowest bucket has pass rates below 0.02: with 16 draws, the groups without a right response
    wrong = sum(bucket["prompts"] for bucket in gauges if bucket["bucket"] == 0) / prompts
    rates = np.array([row["pass_rate"] for row in rows])
    return outcome(rates, finished.summary["pass_rate_last"], wrong, cell.block)


def outcome(curve: np.ndarray, final: float, dead: float, block: int, before: float | None = None) -> Outcome:
    """What is kept from a run.

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
