"""Runs the trials of a sweep and writes its record: checked before it starts, one process per run, resumable."""

import json
import os
import runpy
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pmdkit.child_processes import MERCY, exit_reason, sigterm_interrupts
from pmdkit.errors import ComponentDied, EnvironmentLacks, PmdkitError, Stopped, UsageError
from pmdkit.launchers import ONE, POLL, Launcher
from pmdkit.observe.run_folder import RunFolder, locked, make_writable
from pmdkit.remote_calls import Call
from pmdkit.resolve import resolve
from pmdkit.specs import LLMSpec
from pmdkit.sweeps import grid, record

KILLED = "was killed by"  # first words of the message of `exit_reason`
ERROR = "pmdkit: error: "  # first words of a failed run's last line
LAUNCH = "launch"  # folder for a launcher's files
SWEEP_FOLDER_NAMES = {"runs", "logs", "run.lock", "figures", LAUNCH}  # beside JSON files


def sweep(
    trials: Sequence[grid.Trial],
    out: Path,
    name: str,
    about: dict[str, Any],
    *,
    launcher: Launcher = ONE,
    resume: bool = False,
    log: Callable[[str], None] = lambda sentence: None,
) -> dict[str, Any]:
    """Run the trials of a sweep in `out`, write the results to `out`/`name`.json, and return them.

    Runs that fail are recorded with their reason and do not stop the others; a later `resume` tries them again.

    Args:
        out: new or empty, or with `resume` the folder of a sweep; sweeps in one folder share their runs.
        name: name of the record.
        about: what the record says about the sweep as a whole.
        launcher: where the runs are made, and how many at a time.
        resume: skip finished runs and resume started ones.
        log: called with a sentence about each run that ends.
    """
    devices = check_trials(trials)
    check_folder(out, resume)
    make_writable(out)
    path = out / f"{name}.json"
    failed: dict[str, str] = {}
    with locked(RunFolder(out)):
        record.write(path, trials, out, failed, about)
        try:
            with sigterm_interrupts():
                run_all(trials, out, launcher, devices, log, failed)
        except KeyboardInterrupt:
            record.write(path, trials, out, failed, about)
            raise Stopped(f"the sweep in {out} was stopped; run again with --resume to go on") from None
        result = record.write(path, trials, out, failed, about)
    if not any(run["state"] == "finished" for run in result["runs"]):
        reason = next(iter(failed.values()))
        kind = ComponentDied if reason.startswith(KILLED) else PmdkitError
        raise kind(f"every run of the sweep in {out} failed, the first with: {reason}")
    return result


def check_trials(trials: Sequence[grid.Trial]) -> int:
    """Resolve every setting before the first run starts, so that a typo costs nothing; returns the devices per run."""
    if not trials:
        raise UsageError("the sweep has no runs; expected at least one value of an option and one seed")
    settings = {repr({**trial.options, grid.SEED: 0}): trial for trial in trials}.values()
    specs = [resolve(trial.tier, trial.env, trial.options)[0] for trial in settings]
    return max(spec.parallel.processes if isinstance(spec, LLMSpec) else 1 for spec in specs)


def check_folder(out: Path, resume: bool) -> None:
    """Check that the folder is new or empty, or that of a sweep to resume."""
    there = [path for path in out.glob("*") if path.name != "run.lock"]
    if there and not resume:
        raise UsageError(f"output {out} exists and is not empty; nothing was changed: use --resume or another --out")
    strangers = [path.name for path in there if path.name not in SWEEP_FOLDER_NAMES and path.suffix != ".json"]
    if strangers or (there and not any(path.suffix == ".json" for path in there)):
        raise UsageError(f"output {out} is not the folder of a sweep; nothing was changed: give another --out")


def run_all(
    trials: Sequence[grid.Trial],
    folder: Path,
    launcher: Launcher,
    devices: int,
    log: Callable[[str], None],
    failed: dict[str, str],
) -> None:
    """Finish every run; if this ends early, the runs are stopped first. Adds the reasons of failed runs, by name."""
    distinct = {trial.name: trial for trial in trials}
    calls = []
    for name, trial in distinct.items():
        place = folder / "runs" / name
        if RunFolder(place).finished:
            continue
        arguments = {"tier": trial.tier, "env": trial.env, "options": trial.options, "out": str(place)}
        arguments["log"] = str(folder / "logs" / f"{name}.log")
        calls.append(Call(name, "pmdkit.sweeps.run:run_trial", arguments, apart=True, devices=devices))
    if len(calls) < len(distinct):
        log(f"{len(distinct) - len(calls)} of {len(distinct)} runs are already finished and left alone")
    began = time.monotonic()
    with closing(launcher.run(calls, folder / LAUNCH)) as results:
        for ended, result in enumerate(results, 1):
            name, reason = result.call.name, result.reason
            code = 0 if reason else result.value["code"]
            if code:  # the error that the run reported, or how its process ended
                written = Path(result.call.arguments["log"]).read_text(encoding="utf-8", errors="replace")
                told = [line for line in written.splitlines() if line.startswith(ERROR)]
                reason = told[-1].removeprefix(ERROR) if told else exit_reason(code)
            if reason:
                failed[name], line = reason, f"failed: {reason}"
            else:
                summary = RunFolder(folder / "runs" / name).read_summary()
                first, last = summary["pass_rate_first"], summary["pass_rate_last"]
                line = "" if None in (first, last) else f"pass rate {first:.3f} to {last:.3f} "
                line += f"in {result.value['seconds']:.0f} s"
            left = (time.monotonic() - began) / ended * (len(calls) - ended)
            log(f"{ended}/{len(calls)} {name} {line}; about {left:.0f} s left")


def run_trial(tier: str, env: str, options: dict[str, Any], out: str, log: str) -> dict[str, Any]:
    """In a worker: run `pmdkit TIER ENV` as on the command line, with stderr appended to the file `log`.

    Returns its exit code and seconds. If asked to stop, the run saves a checkpoint and the worker exits with it.
    """
    Path(log).parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as file:
        os.dup2(file.fileno(), 2)
    began = time.monotonic()
    while Path(out).is_dir() and time.monotonic() < began + MERCY:  # the previous process may still be saving
        try:
            with locked(RunFolder(Path(out))):
                break
        except EnvironmentLacks:
            time.sleep(POLL)
    told = [f"{key}={json.dumps(value)}" for key, value in options.items()]
    sys.argv = ["pmdkit", tier, env, "--set", *told, "--out", out, "--resume", "--json"]
    try:
        runpy.run_module("pmdkit", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else int(leave.code is not None)
        if code == Stopped.exit_code:
            raise
    return {"code": code, "seconds": time.monotonic() - began}
