"""Runs a sweep from its trials to its record: checked before it starts, one child process per run, resumable."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pmdkit.errors import ComponentDied, PmdkitError, Stopped, UsageError
from pmdkit.observe.run_folder import RunFolder, locked, make_writable
from pmdkit.processes import ChildProcess, exit_reason, stop_all
from pmdkit.sweeps import grid, record
from pmdkit.training import plan

KILLED = "was killed by"  # how `exit_reason` begins
OURS = {"runs", "logs", "run.lock", "figures"}  # in the folder of a sweep
POLL = 0.05  # seconds between two looks at the children
MERCY = 20.0  # seconds a child has to finish its step once it is asked to stop


def sweep(
    trials: Sequence[grid.Trial],
    out: Path,
    name: str,
    about: dict[str, Any],
    *,
    jobs: int = 1,
    resume: bool = False,
    log: Callable[[str], None] = lambda sentence: None,
) -> dict[str, Any]:
    """Run the trials of a sweep in `out`, keep what came out in `out`/`name`.json, and return that.

    Runs that fail are recorded with their reason and do not stop the others; a later `resume` tries them again.

    Args:
        out: new or empty, or with `resume` the folder of a sweep; sweeps in one folder share their runs.
        name: of the record.
        about: what the record says of the sweep as a whole.
        jobs: runs at a time.
        resume: skip finished runs and resume started ones.
        log: called with a sentence about each step of the work.
    """
    check_trials(trials, jobs)
    check_folder(out, resume)
    make_writable(out)
    path = out / f"{name}.json"
    failed: dict[str, str] = {}
    with locked(RunFolder(out)):
        record.write(path, trials, out, failed, about)
        try:
            with sigterm_interrupts():
                failed = run_all(trials, out, jobs, log)
        except KeyboardInterrupt:
            record.write(path, trials, out, failed, about)
            raise Stopped(f"the sweep in {out} was stopped; run again with --resume to go on") from None
        result = record.write(path, trials, out, failed, about)
    if not any(run["state"] == "finished" for run in result["runs"]):
        reason = next(iter(failed.values()))
        kind = ComponentDied if reason.startswith(KILLED) else PmdkitError
        raise kind(f"every run of the sweep in {out} failed, the first with: {reason}")
    return result


def check_trials(trials: Sequence[grid.Trial], jobs: int) -> None:
    """Resolve every setting before the first run starts, so that a typo costs nothing."""
    if jobs < 1:
        raise UsageError(f"--jobs is {jobs}; expected an integer >= 1")
    if not trials:
        raise UsageError("the sweep has no runs; expected at least one value of an option and one seed")
    for trial in {repr({**trial.options, grid.SEED: 0}): trial for trial in trials}.values():
        plan(trial.tier, trial.env, trial.options)


def check_folder(out: Path, resume: bool) -> None:
    """The folder is new or empty, or that of a sweep to be resumed."""
    if out.exists() and not out.is_dir():
        raise UsageError(f"output {out} is a file; expected a folder: give another --out")
    there = [path for path in out.glob("*") if path.name != "run.lock"]
    if there and not resume:
        raise UsageError(f"output {out} exists and is not empty; nothing was changed: use --resume or another --out")
    strangers = [path.name for path in there if path.name not in OURS and path.suffix != ".json"]
    if strangers or (there and not any(path.suffix == ".json" for path in there)):
        raise UsageError(f"output {out} is not the folder of a sweep; nothing was changed: give another --out")


@contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """SIGTERM stops a sweep as Ctrl-C does: the children save and leave first."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class Child:
    """A run in progress."""

    trial: grid.Trial
    process: ChildProcess
    began: float


def run_all(trials: Sequence[grid.Trial], folder: Path, jobs: int, log: Callable[[str], None]) -> dict[str, str]:
    """Bring every run to its end; whatever ends this call early stops the children first.

    Args:
        trials: what to run; a run in `folder`/runs that has its summary is left alone.
        jobs: children at a time.
        log: called with a sentence about each run that ends.

    Returns:
        Name of each run that failed, and the last line it said.
    """
    distinct = {trial.name: trial for trial in trials}
    waiting = [trial for trial in distinct.values() if not run_folder(folder, trial).finished]
    total, skipped = len(waiting), len(distinct) - len(waiting)
    if skipped:
        log(f"{skipped} of {len(distinct)} runs are finished already and left alone")
    running: list[Child] = []
    failed: dict[str, str] = {}
    began = time.monotonic()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                running.append(start(waiting.pop(0), folder))
            time.sleep(POLL)
            for child in [child for child in running if not child.process.alive]:
                running.remove(child)
                if child.process.exit_code:
                    failed[child.trial.name] = failure_reason(folder, child)
                ended = total - len(waiting) - len(running)
                left = (time.monotonic() - began) / ended * (total - ended)
                log(f"{ended}/{total} {progress_line(child, folder, failed)}; about {left:.0f} s left")
    finally:
        stop_all((child.process for child in running), MERCY)
    return failed


def run_folder(folder: Path, trial: grid.Trial) -> RunFolder:
    """Where a run of the sweep lives."""
    return RunFolder(folder / "runs" / trial.name)


def start(trial: grid.Trial, folder: Path) -> Child:
    """Start or resume a run in a process of its own, with one thread."""
    out = run_folder(folder, trial).path
    options = [f"{key}={json.dumps(value)}" for key, value in trial.options.items()]
    command = [sys.executable, "-m", "pmdkit", trial.tier, trial.env, "--set", *options, "--out", str(out)]
    log_path(folder, trial).parent.mkdir(parents=True, exist_ok=True)
    with open(log_path(folder, trial), "ab") as file:
        process = ChildProcess(
            [*command, "--resume", "--json"],
            {**os.environ, "OMP_NUM_THREADS": "1"},
            signal.SIGTERM,
            stdout=subprocess.DEVNULL,
            stderr=file,
        )
    return Child(trial, process, time.monotonic())


def log_path(folder: Path, trial: grid.Trial) -> Path:
    """What a run said on stderr."""
    return folder / "logs" / f"{trial.name}.log"


def failure_reason(folder: Path, child: Child) -> str:
    """The reason a child gave, or its exit code."""
    lines = log_path(folder, child.trial).read_text(encoding="utf-8", errors="replace").splitlines()
    last = next((line for line in reversed(lines) if line.startswith("pmdkit: error: ")), "")
    code = child.process.exit_code or 0
    return exit_reason(code) if code < 0 or not last else last.removeprefix("pmdkit: error: ")


def progress_line(child: Child, folder: Path, failed: dict[str, str]) -> str:
    """One line about a run that ended."""
    name = child.trial.name
    if name in failed:
        return f"{name} failed: {failed[name]}"
    summary = run_folder(folder, child.trial).read_summary()
    ends = [summary[f"pass_rate_{end}"] for end in ("first", "last")]
    rates = "" if None in ends else f", pass rate {ends[0]:.3f} to {ends[1]:.3f}"
    return f"{name}{rates} in {time.monotonic() - child.began:.0f} s"
