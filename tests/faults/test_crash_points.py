"""Killed, failing or without power at any call that changes a folder: nothing acknowledged is lost."""

from pathlib import Path
from typing import Any

import pytest

from pmdkit.observe import checkpoint, files
from pmdkit.observe.run_folder import RunFolder, make_writable
from tests.nightly import mostly_nightly

from .crash_points import StruckRun, failures, kills, state
from .file_calls import Call, Calls, quick_place


@pytest.fixture
def place():
    """Where folders are made and deleted."""
    with quick_place() as folder:
        yield folder


few = pytest.mark.parametrize("every", mostly_nightly([1, 5], 5))  # a change waits for every fifth call


@few
@pytest.mark.parametrize("resumed", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_run_killed_at_any_call_ends_on_the_same_bits(resumed, every, place):
    run = StruckRun(place, resumed)
    faults = list(kills(run.calls))
    assert run.wrong(faults[::every]) == []
    assert len(faults) > 80


@few
def test_a_disk_that_fails_at_any_call_of_a_run(every, place):
    """Where it fails before anything is computed, exit 3; later, exit 1. Repaired, the same command ends the run."""
    run = StruckRun(place)
    faults = list(failures(run.calls))
    assert run.wrong(faults[::every]) == []
    assert len(faults) > 80


def row(step: int) -> dict[str, Any]:
    """A row of metrics."""
    empty = dict.fromkeys(("pass_rate", "log_ratio_min", "response_length", "gauge"))
    return {"step": step, "reward_mean": step / 8, "tokens": 3, "seconds_rollout": 0.5, "seconds_update": 0.5} | empty


def run(folder: Path, marks: list[int], calls: Calls) -> None:
    """What a run does to its folder: begin, then a row and a checkpoint a step, of which two are kept."""
    out = RunFolder(make_writable(folder))
    out.begin({"seed": 3})
    for step in (1, 2, 3):
        out.append_metrics(row(step))
        checkpoint.Checkpoints(out.checkpoints).save(step, state(step), keep=2)
        marks.append(len(calls.made))
    files.replace(out.summary, files.encode({"steps": 3}))


def unflushed(calls: list[Call]) -> set[Path]:
    """What a loss of power after these calls may take: files whose last bytes, or whose names, are not on the disk."""
    data: set[Path] = set()
    names: set[Path] = set()
    for call in calls:
        path = Path(call.path)
        if call.kind == "write":
            data.add(path)
        elif call.kind == "fsync":
            data.discard(path)
        elif call.kind == "sync names":
            names = {name for name in names if name.parent != path}
        elif call.kind in ("open", "mkdir"):
            names.add(path)
        elif call.kind == "rename":  # a name may reach the disk before what it names
            assert not {lost for lost in data | names - {path} if lost.is_relative_to(path)}, call
            names = names - {path} | {Path(call.target)}
        elif call.kind in ("unlink", "rmdir"):
            data, names = ({lost for lost in some if not lost.is_relative_to(path)} for some in (data, names))
    return data | names


def test_what_was_acknowledged_survives_a_loss_of_power(place):
    """A kill loses nothing of the page cache, so no kill sees a missing fsync: the order of the calls does."""
    live, marks = place / "live", []
    live.mkdir()
    with Calls(live) as calls:
        run(live / "run", marks, calls)
    assert [unflushed(calls.made[:mark]) for mark in marks] == [set()] * 3
    assert any(call.kind == "rename" for call in calls.made)
