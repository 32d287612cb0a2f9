"""Runs the study of adaptive temperatures: tune every arm, compare the arms at their best values, keep every run.

What is compared and how it is judged is written in adaptive_protocol.py. Each run is kept when it ends, so that a study
continues where it was stopped.
"""

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

from pmdkit import envs
from pmdkit.bandit.learner import BanditLearner
from pmdkit.config import Spec
from pmdkit.errors import Stopped, UsageError
from pmdkit.loop import run
from pmdkit.observe import files
from pmdkit.observe.run_folder import RunFolder, locked, make_writable
from pmdkit.sweeps.adaptive_protocol import ABOUT, CELLS, TUNING, StudyCell, Tau, tables
from pmdkit.sweeps.record import rounded
from pmdkit.sweeps.run import sigterm_interrupts
from pmdkit.training import build, plan

DEAD = 0.05  # pass rate of a context of the bandit below which it counts as given up
LAST = 5  # in the other tiers, dead prompts are counted over the last fifth of the steps
JOURNAL = "runs.jsonl"

Outcome = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """One run to be made: a cell by name, an arm, a value of it, a seed."""

    cell: str
    arm: str
    tau: Tau
    seed: int

    @property
    def key(self) -> str:
        """The same for the same run, in the journal."""
        return json.dumps([self.cell, self.arm, self.tau, self.seed], sort_keys=True)


def study(
    tier: str,
    out: Path,
    *,
    jobs: int = 1,
    resume: bool = False,
    log: Callable[[str], None] = lambda sentence: None,
    cells: dict[str, StudyCell] | None = None,
) -> dict[str, Any]:
    """Run one tier of the study in `out` and write OUT/adaptive-tau-TIER.json.

    Args:
        tier: "bandit", "toy" or "starter".
        out: new or empty, or with `resume` where it was begun.
        jobs: runs at a time, each in a process of its own.
        resume: keep what is in the journal.
        log: called with a sentence about each step of the work.
        cells: others than those of the protocol, by name.
    """
    chosen = CELLS[tier] if cells is None else cells
    if out.exists() and any(path.name != "run.lock" for path in out.iterdir()) and not resume:
        raise UsageError(f"output {out} exists and is not empty; nothing was changed: use --resume or another --out")
    make_writable(out)
    with locked(RunFolder(out)):
        done = read_journal(out / JOURNAL)
        try:
            with sigterm_interrupts():
                make_runs(tuning(chosen), chosen, done, out, jobs, log)
                best = tuned(chosen, done)
                make_runs(comparison(chosen, best), chosen, done, out, jobs, log)
        except KeyboardInterrupt:
            raise Stopped(f"the study in {out} was stopped; run again with --resume to go on") from None
        result = summary(chosen, best, done)
        files.replace(out / f"adaptive-tau-{tier}.json", (json.dumps(result, separators=(",", ":")) + "\n").encode())
    return result


def tuning(cells: dict[str, StudyCell]) -> list[Job]:
    """The first half: every value of every arm that has more than one, on the tuning seeds."""
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
    """The second half: every arm at its best value, on fresh seeds."""
    return [
        Job(name, arm, best[name][arm], seed)
        for name, cell in cells.items()
        for seed in range(cell.seeds)
        for arm in cell.arms
    ]


def make_runs(
    wanted: Sequence[Job],
    cells: dict[str, StudyCell],
    done: dict[str, Outcome],
    out: Path,
    jobs: int,
    log: Callable[[str], None],
) -> None:
    """Make the runs that are not in the journal, and write each down as it ends."""
    missing = [job for job in wanted if job.key not in done]
    count = 0
    with open(out / JOURNAL, "ab") as journal:
        for job, found in run_jobs(missing, cells, out, jobs):
            done[job.key] = found
            journal.write(json.dumps({"key": job.key, **found}).encode() + b"\n")
            journal.flush()
            os.fsync(journal.fileno())
            count += 1
            log(f"{count} of {len(missing)}: {job.cell}, {job.arm}, seed {job.seed}, area {found['auc']:.3f}")


def run_jobs(jobs: Sequence[Job], cells: dict[str, StudyCell], out: Path, count: int) -> Iterator[tuple[Job, Outcome]]:
    """Each run as it ends, in this process or in several."""

    def arguments(job: Job) -> tuple[StudyCell, Tau, int, Path]:
        arm = job.arm.replace(" ", "-").replace(",", "")
        return cells[job.cell], job.tau, job.seed, out / "runs" / f"{arm}-{short_name(job.key)}"

    if count == 1:
        yield from ((job, run_job(*arguments(job))) for job in jobs)
        return
    with workers(count) as pool:
        waiting: dict[Future[Outcome], Job] = {}
        rest = iter(jobs)
        while True:
            while len(waiting) < 2 * count and (job := next(rest, None)) is not None:
                waiting[pool.submit(run_job, *arguments(job))] = job
            if not waiting:
                return
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                yield waiting.pop(future), future.result()


@contextmanager
def workers(count: int) -> Iterator[ProcessPoolExecutor]:
    """Processes that are ended with the block, whatever they are doing: what they had not finished is made again."""
    pool = ProcessPoolExecutor(count, mp_context=get_context("spawn"))
    try:
        yield pool
    except BaseException:
        for process in list((pool._processes or {}).values()):
            process.terminate()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown()


def short_name(text: str) -> str:
    """A short name for a long one."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def read_journal(path: Path) -> dict[str, Outcome]:
    """Finished runs by key. A last line that was cut off by a kill is dropped, in the file too."""
    if not path.exists():
        return {}
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    if len(whole) < len(data):
        files.replace(path, whole)
    rows = [json.loads(line) for line in whole.splitlines()]
    return {row.pop("key"): row for row in rows}


def summary(cells: dict[str, StudyCell], best: dict[str, dict[str, Tau]], done: dict[str, Outcome]) -> dict[str, Any]:
    """What is kept of the study: the tuning in means, the comparison run by run, and the tables made of it."""
    runs = [
        {"cell": job.cell, "arm": job.arm, "seed": job.seed, **rounded(done[job.key])}
        for job in comparison(cells, best)
    ]
    tuning_means = [
        {
            "cell": name,
            "arm": arm,
            "tau": tau,
            "auc": rounded(
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
        "tables": rounded(tables(runs)),
    }


# One run, by tier, and what is kept of it.


def run_job(cell: StudyCell, tau: Tau, seed: int, folder: Path) -> Outcome:
    """Area under the curve, final pass rate, worst drop, dead prompts and the curve of one run.

    Args:
        cell: the setting.
        tau: a number or the table of a rule.
        seed: of prompts, draws and weights; in the bandit also of the problem.
        folder: of a language model's run, which is resumed there after an interruption; the others take seconds and are
            not written.
    """
    torch.set_num_threads(1)
    options = {**cell.options, "objective.name": cell.objective, "objective.tau": tau, "run.seed": seed}
    if cell.tier == "llm":
        return llm_run(cell, options, folder)
    if cell.tier == "bandit":
        options["env.seed"] = seed
    spec, objective = plan(cell.tier, cell.env, options)
    return bandit_run(spec, objective) if cell.tier == "bandit" else toy_run(spec, objective, cell.block)


def bandit_run(spec: Spec, objective: Any) -> Outcome:
    """A bandit: true pass rates of all contexts after every step."""
    _, backend = build(spec, objective)
    learner, problem = backend.learner, envs.make(spec.env)
    assert isinstance(learner, BanditLearner)
    curves = [problem.pass_rate(learner.log_policy().numpy())]

    def look(*step: Any) -> None:
        curves.append(problem.pass_rate(learner.log_policy().numpy()))

    run(objective, learner, backend.task, backend.schedule, [look])
    rates = np.array(curves)
    curve = rates.mean(1)
    return outcome(curve[1:], float(curve[-1]), float((rates[-1] < DEAD).mean()), 1, float(curve[0]))


def toy_run(spec: Spec, objective: Any, block: int) -> Outcome:
    """A toy task: pass rates of each step's own draws, which are of the policy before the step."""
    _, backend = build(spec, objective)
    backend.learner.load_state_dict(
        deepcopy(warm(spec.model_copy(update={"objective": {"name": "pmd-mean", "tau": 1.0}})))
    )
    rates: list[float] = []
    wrong: list[float] = []

    def look(step: int, learner: Any, rollouts: Any, groups: Any, *rest: Any) -> None:
        right = groups.reward > 0.5
        rates.append(right.double().mean().item())
        wrong.append((~right.any(1)).double().mean().item())

    run(objective, backend.learner, backend.task, backend.schedule, [look])
    final = backend.evaluate()["pass_rate"]
    assert final is not None
    return outcome(np.array(rates), final, float(np.mean(wrong[-len(wrong) // LAST :])), block)


@functools.lru_cache(maxsize=4)
def warm_state(record: str) -> dict[str, Any]:
    """State of a warm-started learner; the runs of a task and seed share it, whatever their objective."""
    spec = Spec(**json.loads(record))
    backend = build(spec)[1]
    if backend.warm_start is not None:
        backend.warm_start(lambda sentence: None)
    return backend.learner.state_dict()


def warm(spec: Spec) -> dict[str, Any]:
    """The same by its configuration."""
    return warm_state(json.dumps(spec.record(), sort_keys=True))


def llm_run(cell: StudyCell, options: dict[str, Any], folder: Path) -> Outcome:
    """A language model: a run folder, resumed where it stopped."""
    from pmdkit.training import train

    finished = train(cell.objective, cell.tier, cell.env, out=folder, resume=True, options=options)
    rows = finished.metrics
    gauges = [bucket for row in rows[-len(rows) // LAST :] for bucket in row["gauge"] or []]
    prompts = sum(bucket["prompts"] for bucket in gauges)
    # the lowest bucket holds pass rates below 0.02: with 16 draws, groups without a right response
    wrong = sum(bucket["prompts"] for bucket in gauges if bucket["bucket"] == 0) / prompts
    rates = np.array([row["pass_rate"] for row in rows])
    return outcome(rates, finished.summary["pass_rate_last"], wrong, cell.block)


def outcome(curve: np.ndarray, final: float, dead: float, block: int, before: float | None = None) -> Outcome:
    """What is kept.

    Args:
        curve: [steps] pass rates.
        final: of the policy after the last step.
        dead: share of prompts.
        block: steps averaged before a drop is looked for.
        before: pass rate before the first step, where it is exact.
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
