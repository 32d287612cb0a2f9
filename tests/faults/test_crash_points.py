"""Every call of a save, of a row of metrics, of an evaluation: killed or failed there, nothing acknowledged is lost."""

from contextlib import suppress
from unittest import mock

import pytest

from pmdkit.observe import checkpoint, files
from tests.nightly import mostly_nightly

from .crash_points import SCENES, kills, stories, survive, survive_run
from .file_calls import quick_place


@pytest.fixture
def place():
    """Where folders are made and deleted."""
    with quick_place() as folder:
        yield folder


@pytest.mark.parametrize("name", mostly_nightly(SCENES, "first save", "pruning save", "save over leftovers", "restore"))
def test_every_call_may_be_the_last(name, place):
    """Killed or failed before, after and in the middle of each call; the next process ends on the same files."""
    count, wrong = survive(SCENES[name], place)
    assert wrong == []
    assert count >= 12


@pytest.mark.parametrize("name", mostly_nightly(["a run", "a resumed run", "phase 0 and evaluations"], "a run"))
def test_a_run_killed_at_any_call_ends_on_the_same_bits(name, place):
    story = stories(place / "stories")[name]
    count, wrong = survive_run(story, place, kills)
    assert wrong == []
    assert count > 80


def prune_first(folder, step, state, keep, beside=None):
    """The oldest goes before the new one is there."""
    for old in checkpoint.steps(folder)[: len(checkpoint.steps(folder)) - keep + 1]:
        files.remove(checkpoint.journal_path(folder, old))
        files.remove(folder / f"step-{old}")
    SAVE(folder, step, state, keep, beside)


def in_place(folder, step, state, keep, beside=None):
    """The manifest first, and nothing aside."""
    contents = checkpoint.encode_state(state)
    target = folder / f"step-{step}"
    target.mkdir()
    files.write(target / "manifest.json", checkpoint.encode_manifest(step, {}, contents))
    for name, data in contents.items():
        files.write(target / name, data)
    files.sync(folder)
    checkpoint.prune(folder, step, keep)


def leave_it(folder, step, state, keep, beside=None):
    """What was begun stays when the disk is full."""
    with mock.patch.object(files, "remove"):
        SAVE(folder, step, state, keep, beside)


def swallow(path, flags, data, mode, flush=True):
    """An error of a write or a close is not passed on, as when a file is closed by nobody."""
    with suppress(OSError):
        PUT(path, flags, data, mode, flush)


SAVE, PUT = checkpoint.save_step, files.write_bytes
PLANTED = {"prune first": prune_first, "in place, manifest first": in_place, "leave it": leave_it, "swallow": swallow}


@pytest.mark.parametrize("bug", PLANTED)
def test_a_planted_bug_is_seen(bug, place, monkeypatch):
    """Without these the tests above would not be known to see anything; a missing flush is in test_disk.py."""
    if bug == "swallow":
        monkeypatch.setattr(files, "write_bytes", swallow)
    else:
        monkeypatch.setattr(checkpoint, "save_step", PLANTED[bug])
    _, wrong = survive(SCENES["pruning save"], place, most=1)
    assert wrong
