"""Runs the study of adaptive temperatures: tune every arm, compare at the best values; every run is kept as it ends.

What is compared: protocol.py; one run: play.py; what comes of it: table.py.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from pmdkit.errors import Stopped, UsageError
from pmdkit.observe import files
from pmdkit.observe.folder import RunFolder, locked, make
from pmdkit.sweeps.adaptive.play import Outcome, play
from pmdkit.sweeps.adaptive.protocol import ABOUT, CELLS, TUNING, Cell, Tau
from pmdkit.sweeps.adaptive.table import tables
from pmdkit.sweeps.record import rounded
from pmdkit.sweeps.sweep import sigterm_interrupts

JOURNAL = "runs.jsonl"


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
    say: Callable[[str], None] = lambda sentence: None,
    cells: dict[str, Cell] | None = None,
) -> dict[str, Any]:
    """Run one tier of the study in `out` and write OUT/adaptive-tau-TIER.json.

    Args:
        tier: "bandit", "toy" or "starter".
        out: new or empty, or with `resume` where it was begun.
        jobs: runs at a time, each in a process of its own.
        resume: keep what is in the journal.
        say: told about progress.
        cells: others than those of the protocol, by name.
    """
    chosen = CELLS[tier] if cells is None else cells
    if out.exists() and any(path.name != "run.lock" for path in out.iterdir()) and not resume:
        raise UsageError(f"output {out} exists and is not empty; nothing was changed: use --resume or another --out")
    make(out)
    with locked(RunFolder(out)):
        done = read_journal(out / JOURNAL)
        try:
            with sigterm_interrupts():
                make_runs(tuning(chosen), chosen, done, out, jobs, say)
                best = tuned(chosen, done)
                make_runs(comparison(chosen, best), chosen, done, out, jobs, say)
        except KeyboardInterrupt:
            raise Stopped(f"the study in {out} was stopped; run again with --resume to go on") from None
        result = summary(chosen, best, done)
        files.replace(out / f"adaptive-tau-{tier}.json", (json.dumps(result, separators=(",", ":")) + "\n").encode())
    return result


def tuning(cells: dict[str, Cell]) -> list[Job]:
    """The first half: every value of every arm that has more than one, on the tuning seeds."""
    return [
        Job(name, arm, tau, TUNING + seed)
        for name, cell in cells.items()
        for seed in range(cell.tuning)
        for arm, values in cell.arms.items()
        if len(values) > 1
        for tau in values
    ]


def tuned(cells: dict[str, Cell], done: dict[str, Outcome]) -> dict[str, dict[str, Tau]]:
    """cell -> arm -> the value with the largest mean area under the curve."""
    best: dict[str, dict[str, Tau]] = {}
    for name, cell in cells.items():
        best[name] = {}
        for arm, values in cell.arms.items():
            seeds = range(TUNING, TUNING + cell.tuning) if len(values) > 1 else ()
            scores = [sum(done[Job(name, arm, tau, seed).key]["auc"] for seed in seeds) for tau in values]
            best[name][arm] = values[scores.index(max(scores))]
    return best


def comparison(cells: dict[str, Cell], best: dict[str, dict[str, Tau]]) -> list[Job]:
    """The second half: every arm at its best value, on fresh seeds."""
    return [
        Job(name, arm, best[name][arm], seed)
        for name, cell in cells.items()
        for seed in range(cell.seeds)
        for arm in cell.arms
    ]


def make_runs(
    wanted: Sequence[Job],
    cells: dict[str, Cell],
    done: dict[str, Outcome],
    out: Path,
    jobs: int,
    say: Callable[[str], None],
) -> None:
    """Make the runs that are not in the journal, and write each down as it ends."""
    missing = [job for job in wanted if job.key not in done]
    count = 0
    with open(out / JOURNAL, "ab") as journal:
        for job, found in played(missing, cells, out, jobs):
            done[job.key] = found
            journal.write(json.dumps({"key": job.key, **found}).encode() + b"\n")
            journal.flush()
            os.fsync(journal.fileno())
            count += 1
            say(f"{count} of {len(missing)}: {job.cell}, {job.arm}, seed {job.seed}, area {found['auc']:.3f}")


def played(jobs: Sequence[Job], cells: dict[str, Cell], out: Path, count: int) -> Iterator[tuple[Job, Outcome]]:
    """Each run as it ends, in this process or in several."""

    def arguments(job: Job) -> tuple[Cell, Tau, int, Path]:
        arm = job.arm.replace(" ", "-").replace(",", "")
        return cells[job.cell], job.tau, job.seed, out / "runs" / f"{arm}-{short_name(job.key)}"

    if count == 1:
        yield from ((job, play(*arguments(job))) for job in jobs)
        return
    with workers(count) as pool:
        waiting: dict[Future[Outcome], Job] = {}
        rest = iter(jobs)
        while True:
            while len(waiting) < 2 * count and (job := next(rest, None)) is not None:
                waiting[pool.submit(play, *arguments(job))] = job
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


def summary(cells: dict[str, Cell], best: dict[str, dict[str, Tau]], done: dict[str, Outcome]) -> dict[str, Any]:
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
