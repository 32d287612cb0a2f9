"""Killed, failing or without power at any call that changes a folder: nothing acknowledged is lost."""

import os
from pathlib import Path
from typing import Any

import pytest

from pmdkit.observe import checkpoint, files
from pmdkit.observe.run_folder import RunFolder, make_writable

from .crash_points import StruckRun, failures, kills, same, state
from .file_calls import Calls, crashes, quick_place, write

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="children are forked")


@pytest.fixture
def place():
    """Where folders are made and deleted."""
    with quick_place() as folder:
        yield folder


@pytest.mark.parametrize("resumed", [False, pytest.param(True, marks=pytest.mark.nightly)])
def test_a_run_killed_at_any_call_ends_on_the_same_bits(resumed, place):
    run = StruckRun(place, resumed)
    faults = list(kills(run.calls))
    assert run.wrong(faults) == []
    assert len(faults) > 80


def test_a_disk_that_fails_at_any_call_of_a_run(place):
    """Where it fails before anything is computed, exit 3; later, exit 1. Repaired, the same command ends the run."""
    run = StruckRun(place)
    faults = list(failures(run.calls))
    assert run.wrong(faults) == []
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
        checkpoint.save_step(out.checkpoints, step, state(step), keep=2)
        marks.append(len(calls.made))
    files.replace(out.summary, files.encode({"steps": 3}))


def test_what_was_acknowledged_survives_a_loss_of_power(place):
    """At any call, whatever part of what was not flushed reaches the disk: see `file_calls.Loss`."""
    live, after, marks = place / "live", place / "after", []
    live.mkdir()
    with Calls(live) as calls:
        run(live / "run", marks, calls)
    tried = set()
    for number, loss, contents in crashes(calls.made):
        acknowledged = sum(mark <= number for mark in marks)
        if (disk := (acknowledged, tuple(contents.items()))) in tried:
            continue
        tried.add(disk)
        write(contents, after)
        found, where = RunFolder(after / "run"), f"{loss} after call {number}"
        step, loaded, damaged = checkpoint.find_newest(found.checkpoints)
        assert step >= acknowledged, where
        assert damaged == [], where
        assert not step or same(loaded, state(step)), where
        if acknowledged:
            assert [entry["step"] for entry in found.read_metrics()][:step] == list(range(1, step + 1)), where
    assert len(tried) > 100
