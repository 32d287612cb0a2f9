"""A sweep survives kill -9, Ctrl-C and failing runs: finished runs stay, started ones go on, nothing is overwritten."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from pmdkit import train
from pmdkit.errors import PmdkitError, UsageError
from pmdkit.observe.checkpoint import steps
from pmdkit.sweeps import record
from pmdkit.sweeps.compare import collect
from pmdkit.sweeps.grid import expand
from pmdkit.sweeps.run import sweep

LONG = 600
FIXED = {"schedule.group": 8, "schedule.prompts": 8}
OVER = {"schedule.steps": [2, LONG]}
POINTS = expand("bandit", "two-hills", OVER, [0], FIXED)
COMMAND = [
    *("bandit", "two-hills", "--over", f"steps=2,{LONG}", "--seeds", "1"),
    *("--set", "group=8", "prompts=8"),
]


def start(out, *more):
    """The command line's sweep in a process of its own."""
    command = [sys.executable, "-m", "pmdkit", "sweep", *COMMAND, "--out", str(out), *more]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def wait_for(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.slow
def test_interrupt_then_kill_9_then_resume(tmp_path):
    """The first run is done and the second under way when the sweep is interrupted, and then killed. In the end the
    first has not been touched, and the second is the run that nobody disturbed."""
    out = tmp_path / "sweep"
    first, second = (out / "runs" / point.name for point in POINTS)
    process = start(out)
    wait_for(lambda: (first / "summary.json").exists() and len(steps(second / "checkpoints")) > 1)
    os.kill(process.pid, signal.SIGINT)
    told = process.communicate(timeout=60)[1].decode()
    assert process.returncode == 75, told
    assert [run["state"] for run in record.read(out / "sweep.json")["runs"]] == ["finished", "waiting"]
    assert not held(second)
    before = {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.name != "run.lock"}

    reached = steps(second / "checkpoints")[-1]
    process = start(out, "--resume")
    wait_for(lambda: steps(second / "checkpoints")[-1] > reached)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate()
    assert not (second / "summary.json").exists()
    if sys.platform == "linux":  # the kernel tells the children
        wait_for(lambda: not held(second))

    result = sweep(POINTS, out, "sweep", {}, resume=True)
    assert before == {path: path.stat().st_mtime_ns for path in first.rglob("*") if path.name != "run.lock"}
    whole = train("pmd-mean", "bandit", "two-hills", steps=LONG, group=8, prompts=8, out=tmp_path / "whole")
    rows = [json.loads(line) for line in (second / "metrics.jsonl").read_text().splitlines()]
    assert [timeless(row) for row in rows] == [timeless(row) for row in whole.metrics]
    assert [run["state"] for run in result["runs"]] == ["finished", "finished"]


def timeless(row):
    """A row of metrics without its wall-clock keys."""
    return {key: value for key, value in row.items() if key not in ("seconds_rollout", "seconds_update")}


def held(folder):
    """Whether a process still works in a run folder."""
    from pmdkit.errors import EnvironmentLacks
    from pmdkit.observe.run_folder import RunFolder, locked

    try:
        with locked(RunFolder(folder)):
            return False
    except EnvironmentLacks:
        return True


@pytest.mark.slow  # several processes that import torch
def test_a_failing_run_is_recorded_and_the_others_go_on(tmp_path):
    points = expand("bandit", "needle", {"schedule.lr": [0.1, 1e200]}, [0], DIVERGES)
    result = sweep(points, tmp_path / "sweep", "sweep", {})
    good, bad = result["runs"]
    assert (good["state"], bad["state"]) == ("finished", "failed")
    assert "loss is inf" in bad["reason"]
    entries, skipped = collect([tmp_path / "sweep" / "sweep.json"])
    assert len(entries) == 1
    assert skipped == [bad["name"]]
    by_folder, _ = collect([tmp_path / "sweep"])
    assert by_folder[0]["config"] == entries[0]["config"]
    assert record.rounded(by_folder[0]["summary"]) == entries[0]["summary"]


DIVERGES = {
    "schedule.prompts": 2,
    "schedule.ministeps": 2,
    "schedule.steps": 2,
    "schedule.update": "gradient",
    "schedule.optimizer": "sgd",
}


def test_a_typo_costs_nothing(tmp_path):
    points = expand("bandit", "needle", {"objective.taw": [1.0]}, [0], {})
    with pytest.raises(UsageError):
        sweep(points, tmp_path / "sweep", "sweep", {})
    assert not (tmp_path / "sweep").exists()


def test_a_strange_folder_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("dear")
    for resume in (True, False):
        with pytest.raises(UsageError):
            sweep(POINTS, tmp_path, "sweep", {}, resume=resume)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.slow  # several processes that import torch
def test_no_finished_run_at_all_is_an_error(tmp_path):
    points = expand("bandit", "needle", {"schedule.lr": [1e200]}, [0], DIVERGES)
    with pytest.raises(PmdkitError):
        sweep(points, tmp_path / "sweep", "sweep", {})
