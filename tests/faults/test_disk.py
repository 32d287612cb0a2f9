"""A disk that fails at any call of a run: the documented exit code, one line that says what to do, and no step lost.

And the power goes at any call: what was acknowledged was flushed, with its names, and is what the next process finds.
Real runs go on from what is left, to the bits of an undisturbed one.
"""

import errno
import os
import random
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from pmdkit import train
from pmdkit.errors import EnvironmentLacks, PmdkitError
from pmdkit.observe import checkpoint, files, metrics
from pmdkit.observe.run_folder import RunFolder, make_writable

from .crash_points import (
    ERRORS,
    OPTIONS,
    WALL_CLOCK,
    RunStory,
    bandit,
    result,
    row,
    same,
    state,
    stories,
    survive_run,
    taught,
    tree,
)
from .file_calls import FLUSHES, Call, Calls, Fault, Node, crashes, quick_place, stored, write
from .harness import scaled


def failures(calls: list[Call]):
    """Each call fails once, the errors in turn, before it or in its middle, and the disk stays as it is."""
    locked = False
    for number, call in enumerate(calls, 1):
        if call.path == "run/run.lock" and (call.kind != "open" or locked):  # what is written there decides nothing
            continue
        locked = locked or call.path == "run/run.lock"
        yield Fault(number, "half" if call.kind == "write" else "before", ERRORS[number % len(ERRORS)], lasting=True)


@pytest.mark.nightly
def test_a_disk_that_fails_at_any_call_of_a_run():
    """Where it fails before anything is computed, exit 3; later, exit 1. Mended, the same command ends the run."""
    with quick_place() as place:
        count, wrong = survive_run(stories(place / "stories")["a run"], place, failures)
    assert wrong == []
    assert count > 80


def test_a_full_disk_is_told_with_numbers(tmp_path):
    """The size of the whole checkpoint, what is free, and where."""
    checkpoint.save_step(tmp_path, 1, state(1), keep=2)
    written = sum(file.stat().st_size for file in tmp_path.rglob("*") if file.is_file())
    with Calls(tmp_path, Fault(3, "half", errno.ENOSPC, lasting=True)), pytest.raises(OSError) as told:
        checkpoint.save_step(tmp_path, 2, state(2), keep=2)
    assert told.value.errno == errno.ENOSPC
    assert f"{written / 1e3:.1f} kB to write" in str(told.value)
    assert "free on the disk" in str(told.value)
    assert told.value.filename == str(tmp_path / "step-2")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["journal-1.safetensors", "step-1"]


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
    step, loaded, warnings = checkpoint.load_newest(out.checkpoints)
    assert step >= acknowledged, f"step {acknowledged} was acknowledged, {step} is the newest"
    in_pieces = [text for text in warnings if "restored from its journal" not in text]
    assert in_pieces == [], "a checkpoint is there before its bytes are"
    assert loaded == {} or same(loaded, state(step))
    out.rewind(step)
    assert out.read_metrics() == [row(number) for number in range(1, step + 1)]


@pytest.fixture(params=["journal", "files"])
def acknowledged_by(request, monkeypatch):
    """Small checkpoints have a journal, large ones none."""
    if request.param == "files":
        monkeypatch.setattr(checkpoint, "JOURNALED", 0)
    return request.param


def test_what_was_acknowledged_is_on_the_disk(acknowledged_by):
    assert list(lost()) == []


SAVE = checkpoint.save_step


def rename_first(folder, step, state, keep, extra_files=None):
    """A planted bug: every flush of a save is made, after the rename and not before it."""
    with mock.patch("os.fsync"):
        SAVE(folder, step, state, keep + 1, extra_files)
    for path in (*sorted((folder / f"step-{step}").iterdir()), *folder.iterdir(), folder):
        files.sync(path)
    checkpoint.prune(folder, step, keep)


@pytest.mark.parametrize(
    "missing", ["the bytes", "the names in a checkpoint", "the names of all", "the metrics", "in time"]
)
def test_a_missing_fsync_is_seen(missing, acknowledged_by, monkeypatch):
    """Planted bugs: without any one flush of the protocol, or with all too late, some loss of power loses a step."""
    if (missing, acknowledged_by) == ("the names in a checkpoint", "journal"):
        assert list(lost()) == []  # these are not flushed
        return
    sync, put = files.sync, files.write_bytes
    names = {"the names in a checkpoint": ".part", "the names of all": "checkpoints"}

    def put_only(path, *more):
        mine = ".safetensors" in path.name if missing == "the bytes" else path.name == "metrics.jsonl"
        with mock.patch("os.fsync", return_value=None) if mine else nullcontext():
            put(path, *more)

    if missing == "in time":
        monkeypatch.setattr(checkpoint, "save_step", rename_first)
    elif missing in names:
        monkeypatch.setattr(files, "sync", lambda path: None if path.name.endswith(names[missing]) else sync(path))
    else:
        monkeypatch.setattr(files, "write_bytes", put_only)
    assert next(lost(), None) is not None


# A loss of power in whole runs, which then go on.


def every_other(out: Path, resume: bool) -> None:
    """Steps with weights and steps without."""
    train("pmd-mean", "bandit", "needle", out=out, resume=resume, options={**OPTIONS, "checkpoint_every": 2}, steps=5)


POWER = {
    story.name: story
    for story in (
        RunStory("a run", bandit),
        RunStory("every other step", every_other),
        RunStory("phase 0 and evaluations", taught),
    )
}


@dataclass
class Recorded:
    """The calls of a run, and how many it had made when it acknowledged something.

    Attributes:
        calls: what it did to its folder.
        saved: of each checkpoint the calls until then, and its step.
        rows: of each row of metrics the same.
    """

    calls: list[Call] = field(default_factory=list)
    saved: list[tuple[int, int]] = field(default_factory=list)
    rows: list[tuple[int, int]] = field(default_factory=list)

    def until(self, number: int) -> tuple[int, int]:
        """The step of the newest checkpoint, and of the newest row, that were acknowledged in so many calls."""
        newest = (max((step for at, step in marks if at <= number), default=0) for marks in (self.saved, self.rows))
        return next(newest), next(newest)


def record(story: RunStory, place: Path) -> Recorded:
    """Run to the end, from whatever stands there."""
    told, append = Recorded(), metrics.append
    with Calls(place) as calls:
        told.calls = calls.made

        def save_step(folder: Path, step: int, *more: Any, **rest: Any) -> None:
            SAVED(folder, step, *more, **rest)
            if folder.name == "checkpoints":
                told.saved.append((len(calls.made), step))

        def append_row(path: Path, row: dict[str, Any]) -> None:
            append(path, row)
            told.rows.append((len(calls.made), row["step"]))

        SAVED = checkpoint.save_step
        with mock.patch.object(checkpoint, "save_step", save_step), mock.patch.object(metrics, "append", append_row):
            story.go(place / "run", (place / "run").exists())
    return told


def timeless(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of metrics without what the clock decides."""
    return [{key: value for key, value in row.items() if key not in WALL_CLOCK} for row in rows]


def look(out: RunFolder, saved: int, rows: int, wanted: dict[str, Any]) -> None:
    """What was acknowledged is there, with its bits, and nothing that is there is damaged. Changes nothing.

    Raises:
        AssertionError: it is not so.
    """
    step, _, damaged = checkpoint.find_newest(out.checkpoints)
    assert step >= saved, f"step {saved} was acknowledged, {step} is the newest"
    assert damaged == [], f"a checkpoint is there before its bytes are: {damaged}"
    found = timeless(out.read_metrics()) if out.metrics.exists() else []
    least = max(rows, step)
    assert found[:least] == wanted["metrics.jsonl"][:least], f"{len(found)} rows, {rows} were acknowledged"
    if out.finished:  # it is not gone on with, so what it dropped has to be gone
        names = {f"checkpoints/{name}" for name in tree(out.checkpoints)}
        assert names == {name for name in wanted if name.startswith("checkpoints/")}, f"a finished run has {names}"


def disks(told: Recorded, root: Node | None = None) -> list[tuple[int, str, dict[str, bytes | None]]]:
    """Every disk that a loss of power may leave: the calls until then, words, and what is on it; none of them twice."""
    found: dict[tuple[Any, ...], tuple[int, str]] = {}
    for number, loss, contents in crashes(told.calls, root):
        found[tuple(contents.items())] = number, f"after call {number} with {loss}"  # the latest acknowledged most
    return [(number, words, dict(contents)) for contents, (number, words) in found.items()]


def lose_power(story: RunStory, place: Path, most: int) -> Iterator[str]:
    """What is wrong after each loss of power in a run, in words; of so many by chance, when the run has gone on too.

    Of these, half lose power again while they go on.
    """
    chance, after = random.Random(story.name), place / "after"
    with mock.patch("pmdkit.observe.run_folder.describe_machine", return_value={}):  # looking up versions takes long
        (place / "live").mkdir()
        told = record(story, place / "live")
        wanted = result(place / "live" / "run")
        every = disks(told)
        assert len(every) > 200
        for number, words, contents in every:
            write(contents, after)
            try:
                look(RunFolder(after / "run"), *told.until(number), wanted)
            except (AssertionError, PmdkitError, OSError) as problem:
                yield f"{words}: {type(problem).__name__}: {problem}"
        for turn, (number, words, contents) in enumerate(chance.sample(every, min(most, len(every)))):
            write(contents, after)
            known = told.until(number)
            try:
                more = record(story, after)
                if turn % 2:
                    number, again, contents = chance.choice(disks(more, stored(contents)))
                    words += f" and {again}"
                    write(contents, after)
                    known = max(known[0], more.until(number)[0]), known[0]
                    look(RunFolder(after / "run"), *known, wanted)
                    record(story, after)
                found = result(after / "run")
                other = [name for name in sorted(found.keys() | wanted.keys()) if found.get(name) != wanted.get(name)]
                assert other == [], f"other than in an undisturbed run: {other}"
            except (AssertionError, PmdkitError, OSError) as problem:
                yield f"{words}: {type(problem).__name__}: {problem}"


@pytest.mark.parametrize("name", POWER)
def test_a_run_that_lost_power_ends_on_the_same_bits(name):
    """At any of its calls, and some a second time while they go on."""
    with quick_place() as place:
        assert list(lose_power(POWER[name], place, scaled(16))) == []


@pytest.mark.parametrize("bug", ["a flush is missing", "the rename comes before the flush"])
def test_a_bug_in_a_real_save_is_seen(bug, monkeypatch):
    """Planted in the run itself: the journal is never flushed, or all is, too late."""
    put = files.write_bytes

    def put_only(path, *more):
        with mock.patch("os.fsync") if path.name.startswith(".journal") else nullcontext():
            put(path, *more)

    if bug == "a flush is missing":
        monkeypatch.setattr(files, "write_bytes", put_only)
    else:
        monkeypatch.setattr(checkpoint, "save_step", rename_first)
    with quick_place() as place:
        assert next(lose_power(POWER["a run"], place, 0), None) is not None


# What a step waits for.

SMALL = {"warm_start.pass_rate": 0.0, "schedule.prompts": 8, "schedule.group": 4}
CARD = ("README.md", "chat_template.jinja", "config.json", "generation_config.json", "tokenizer.json",
        "tokenizer_config.json")  # fmt: skip
TIERS = {
    "bandit": ("needle", OPTIONS, ()),
    "toy": ("modular-sum", SMALL, ()),
    "llm": ("starter", {**SMALL, "evaluation.problems": 8}, CARD),
}


@pytest.mark.parametrize("tier", ["bandit", "toy", pytest.param("llm", marks=pytest.mark.slow)])
def test_what_a_step_flushes(tier, acknowledged_by):
    """The table of docs/use/checkpoints.md: three flushes for a step with weights, one for a step without."""
    env, options, beside = TIERS[tier]
    options = {**options, "run.checkpoint_every": 2}

    def go(out: Path, resume: bool) -> None:
        train("pmd-mean", tier, env, out=out, resume=resume, options=options, steps=5)

    with quick_place() as place:
        told = record(RunStory(tier, go), place)
    done = {step: at for at, step in sorted((*told.rows, *told.saved))}  # of a step with weights, its checkpoint
    flushed = {
        step: sorted(call.path for call in told.calls[done[step - 1] : done[step]] if call.kind in FLUSHES)
        for step in (3, 4)
    }
    aside = "run/checkpoints/.step-4.part"
    files_of = ("manifest.json", "model.safetensors", "optimizer.safetensors", "state.json", *beside)
    by = {
        "journal": ["run/checkpoints/.journal-4.safetensors.part"],
        "files": [aside, *(f"{aside}/{name}" for name in files_of)],
    }
    assert flushed[3] == ["run/metrics.jsonl"]
    assert flushed[4] == sorted(["run/metrics.jsonl", "run/checkpoints", *by[acknowledged_by]])
