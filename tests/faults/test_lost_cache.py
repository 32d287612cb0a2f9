"""The power goes at any call: what was acknowledged was flushed, with its names, and is what the next process finds."""

from contextlib import nullcontext
from unittest import mock

import pytest

from pmdkit.errors import PmdkitError
from pmdkit.observe import checkpoint, files, metrics
from pmdkit.observe.run_folder import RunFolder, make_writable

from .crash_points import row, same, state
from .file_calls import Calls, quick_place
from .lost_cache import crashes, write

STEPS = 3


def run(folder, acknowledged=None):
    """What a run does to its folder: begin, then a row and a checkpoint a step, of which two are kept."""
    out = RunFolder(make_writable(folder))
    out.begin({"seed": 3})
    for step in range(1, STEPS + 1):
        metrics.append(out.metrics, row(step))
        checkpoint.save_step(out.checkpoints, step, state(step), keep=2)
        if acknowledged is not None:
            acknowledged()
    files.replace(out.summary, files.encode({"steps": STEPS}))


def lost():
    """Each loss of power after which something acknowledged is missing, in words."""
    with quick_place() as place:
        yield from losses(place)


def losses(place):
    """The same, in a folder."""
    live, after = place / "live", place / "after"
    live.mkdir()
    marks: list[int] = []
    with Calls(live) as calls:
        run(live / "run", lambda: marks.append(len(calls.made)))
    tried = set()
    for number, loss, contents in crashes(calls.made):
        acknowledged = sum(mark <= number for mark in marks)
        disk = acknowledged, tuple(contents.items())
        if disk in tried:
            continue
        tried.add(disk)
        write(contents, after)
        try:
            check(RunFolder(after / "run"), acknowledged)
        except (AssertionError, PmdkitError, OSError) as problem:
            yield f"after call {number} with {loss}: {problem}"
    assert len(tried) > 100


def check(out, acknowledged):
    """The newest checkpoint is the last acknowledged one or a later one, and metrics reach as far."""
    if acknowledged:
        assert out.started, "the run folder is gone"
    if not out.checkpoints.exists():
        assert acknowledged == 0, f"step {acknowledged} is gone with its folder"
        return
    step, loaded, _ = checkpoint.load_newest(out.checkpoints)
    assert step >= acknowledged, f"step {acknowledged} was acknowledged, {step} is the newest"
    assert loaded == {} or same(loaded, state(step))
    out.rewind(step)
    assert out.read_metrics() == [row(number) for number in range(1, step + 1)]


def test_what_was_acknowledged_is_on_the_disk():
    assert list(lost()) == []


@pytest.mark.parametrize("missing", ["the bytes", "the names in a checkpoint", "the names of all", "the metrics"])
def test_a_missing_fsync_is_seen(missing, monkeypatch):
    """Planted bugs: without any one flush of the protocol, some loss of power loses a step."""
    sync, put = files.sync, files.write_bytes
    names = {"the names in a checkpoint": ".part", "the names of all": "checkpoints"}

    def put_only(path, *more):
        mine = path.name.endswith("safetensors") if missing == "the bytes" else path.name == "metrics.jsonl"
        with mock.patch("os.fsync", return_value=None) if mine else nullcontext():
            put(path, *more)

    if missing in names:
        monkeypatch.setattr(files, "sync", lambda path: None if path.name.endswith(names[missing]) else sync(path))
    else:
        monkeypatch.setattr(files, "write_bytes", put_only)
    assert next(lost(), None) is not None
