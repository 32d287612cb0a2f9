"""A disk that fails at any call of a run: the documented exit code, one line that says what to do, and no step lost."""

import errno
import os
from pathlib import Path

import pytest

from pmdkit import train
from pmdkit.errors import EnvironmentLacks
from pmdkit.observe import checkpoint, files

from . import crash_points_runs as runs
from .crash_points import ERRORS, state
from .crash_points_runs import bandit, stories
from .file_calls import Call, Calls, Fault, quick_place


def failures(calls: list[Call]):
    """Each call fails once, the errors in turn, before it or in its middle, and the disk stays as it is."""
    for number, call in enumerate(calls, 1):
        if (call.kind, call.path) == ("close", "run/run.lock"):  # nothing was written to it
            continue
        yield Fault(number, "half" if call.kind == "write" else "before", ERRORS[number % len(ERRORS)], lasting=True)


def test_a_disk_that_fails_at_any_call_of_a_run():
    """Where it fails before anything is computed, exit 3; later, exit 1. Mended, the same command ends the run."""
    with quick_place() as place:
        count, wrong = runs.survive(stories(place / "stories")["a run"], place, failures)
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
            train(out=out, env="needle", resume=resume, options=runs.OPTIONS, steps=9)
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
