"""A disk that fails at any call of a run: the documented exit code, one line that says what to do, and no step lost.

And the power goes at any call: what was acknowledged was flushed, with its names, and is what the next process finds.
"""

import errno
import os
from contextlib import nullcontext
from pathlib import Path
from unittest import mock

import pytest

from pmdkit import train
from pmdkit.errors import EnvironmentLacks, PmdkitError
from pmdkit.observe import checkpoint, files, metrics
from pmdkit.observe.run_folder import RunFolder, make_writable

from .crash_points import ERRORS, OPTIONS, bandit, row, same, state, stories, survive_run
from .file_calls import Call, Calls, Fault, crashes, quick_place, write


def failures(calls: list[Call]):
    """Each call fails once, the errors in turn, before it or in its middle, and the disk stays as it is."""
    locked = False
    for number, call in enumerate(calls, 1):
        if call.path == "run/run.lock" and (call.kind != "open" or locked):  # what is written there decides nothing
            continue
        locked = locked or call.path == "run/run.lock"
        yield Fault(number, "half" if call.kind == "write" else "before", ERRORS[number % len(ERRORS)], lasting=True)


def test_a_disk_that_fails_at_any_call_of_a_run():
    """Where it fails before anything is computed, exit 3; later, exit 1. Mended, the same command ends the run."""
    with quick_place() as place:
        count, wrong = survive_run(stories(place / "stories")["a run"], place, failures)
    assert wrong == []
    assert count > 80


def test_a_full_disk_is_told_with_numbers(tmp_path):
    """The size of the whole checkpoint, what is free, and where."""
    checkpoint.save_step(tmp_path, 1, state(1), keep=2)
    written = sum(file.stat().st_size for file in (tmp_path / "step-1").iterdir())
    with Calls(tmp_path, Fault(3, "half", errno.ENOSPC, lasting=True)), pytest.raises(OSError) as told:
        checkpoint.save_step(tmp_path, 2, state(2), keep=2)
    assert told.value.errno == errno.ENOSPC
    assert f"{written / 1e3:.1f} kB to write" in str(told.value)
    assert "free on the disk" in str(told.value)
    assert told.value.filename == str(tmp_path / "step-2")
    assert [path.name for path in tmp_path.iterdir()] == ["step-1"]


def test_a_read_only_folder_is_said_before_anything_is_computed(tmp_path, monkeypatch):
    """Exit 3 at the start of a run and of a resume, from a disk that takes nothing."""
    bandit(tmp_path / "run", False)
    for out, resume in ((tmp_path / "new", False), (tmp_path / "run", True)):
        read_only(monkeypatch, tmp_path)
        with pytest.raises(EnvironmentLacks, match="cannot be written \\(Read-only file system\\)"):
            train(out=out, env="needle", resume=resume, options=OPTIONS, steps=9)
        monkeypatch.undo()


def read_only(monkeypatch, folder):
    """Every call that would write below a folder fails."""
    real = os.open, os.mkdir

    def refuse(path):
        if str(path).startswith(str(folder)):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    def open_(path, flags, *more, **rest):
        if flags & (os.O_WRONLY | os.O_RDWR):
            refuse(path)
        return real[0](path, flags, *more, **rest)

    def mkdir(path, *more, **rest):
        refuse(path)
        return real[1](path, *more, **rest)

    monkeypatch.setattr(os, "open", open_)
    monkeypatch.setattr(os, "mkdir", mkdir)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the device that is always full, of Linux")
def test_a_real_full_device_is_seen():
    """Not only the patched calls: the kernel's own answer."""
    with pytest.raises(OSError, match=r"No space left on device: .* to write"):
        files.write_bytes(Path("/dev/full"), os.O_WRONLY, b"x" * 10_000, 0o600)


# A loss of power.

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
