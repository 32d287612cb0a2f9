"""Whole runs struck at one call: what a run is here, who acknowledged which step, and what must hold afterwards."""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Any
from unittest import mock

from pmdkit import train
from pmdkit.cli import explain_error, fail
from pmdkit.errors import PmdkitError
from pmdkit.llm import evaluate
from pmdkit.llm.callbacks import EvaluationCallback
from pmdkit.observe import checkpoint
from pmdkit.observe.console import SilentDisplay
from pmdkit.observe.run_folder import RunFolder, make_writable, new_folder
from pmdkit.trainer import fit
from pmdkit.training import build, plan

from .crash_points import answers, state, tree
from .file_calls import REAL, Call, Calls, Fault, forked

OPTIONS = {"env.arms": 4, "update": "gradient", "keep": 2, "prompts": 2, "group": 2, "ministeps": 1, "seed": 5}
WALL_CLOCK = ("seconds_rollout", "seconds_update", "seconds", "out")


def bandit(out: Path, resume: bool, steps: int = 3) -> None:
    """A run whose steps take a millisecond: a first save, one in the middle, one that prunes."""
    train("pmd-mean", "bandit", "needle", out=out, resume=resume, options=OPTIONS, steps=steps)


class Marked(EvaluationCallback):
    """The evaluation of a language model without the model: records, markers and resume are the real ones."""

    def draw(self, record: Path | None) -> list[evaluate.Answered]:
        assert record is not None
        done = evaluate.read_record(record, 2)
        for turn in ([0, 1], [2, 3]):
            if missing := [n for n in turn if f"p{n}" not in done]:
                evaluate.append(record, answers(missing))
        return answers([0, 1, 2, 3])

    def audit(self, answers: list[evaluate.Answered]) -> None:
        """Nobody looks."""

    def report_routing(self) -> None:
        """There are none."""

    def scores(self, answers: list[evaluate.Answered]) -> dict[str, float | None]:
        return {"pass_rate": 1.0, "reward": 1.0}


def taught(out: Path, resume: bool) -> None:
    """A run with what a language model's has besides: checkpoints of phase 0, and evaluations with markers."""
    spec, objective = plan("bandit", "needle", {**OPTIONS, "steps": 2}, None)
    backend = build(spec, objective)[1]
    evaluations = Marked(backend.learner, backend.task, mock.Mock(), last=2, every=1)  # type: ignore[arg-type]
    evaluations.evaluation.name = "held-out"  # type: ignore[misc]

    def warm_start(note: Callable[[str], None]) -> None:
        assert evaluations.folder is not None
        place = evaluations.folder.phase_0
        place.mkdir(exist_ok=True)
        for step in range(checkpoint.load_newest(place)[0] + 1, 4):
            checkpoint.save_step(place, step, state(step), keep=1)

    callbacks = [*backend.callbacks, evaluations]
    backend = replace(backend, warm_start=warm_start, evaluate=evaluations.evaluate, callbacks=callbacks)
    folder = RunFolder(make_writable(out)) if resume else new_folder(out, "run")
    fit(spec, objective, backend, folder, SilentDisplay())


@dataclass(frozen=True)
class Story:
    """A run and how far it is before it is struck.

    Attributes:
        name: for people.
        go: the command; with `resume` it goes on.
        killed_at: the call of a first process at which that one was killed; 0 for none.
        about: what the paths of the calls that are struck contain.
    """

    name: str
    go: Callable[[Path, bool], None]
    killed_at: int = 0
    about: tuple[str, ...] = ("",)


def longer(out: Path, resume: bool) -> None:
    """Four steps, so that a resumed run saves and prunes."""
    bandit(out, resume, steps=4)


def stories(place: Path) -> dict[str, Story]:
    """The runs that are struck. A resumed one was killed when its third checkpoint was complete but not renamed."""
    place.mkdir(parents=True)
    with Calls(place) as calls:
        longer(place / "counted", False)
    third = [call.kind == "rename" and call.target.endswith("checkpoints/step-3") for call in calls.made].index(True)
    shutil.rmtree(place / "counted")
    besides = Story("phase 0 and evaluations", taught, about=("phase-0", "evaluations", "checkpoints/.step-0"))
    found = [Story("a run", bandit), Story("a resumed run", longer, third + 1), besides]
    return {story.name: story for story in found}


def result(out: Path) -> dict[str, Any]:
    """Everything a run leaves but times: what two runs are compared by."""
    found: dict[str, Any] = tree(out)
    found.pop("run.lock")
    for name in ("metrics.jsonl", "summary.json"):
        text = found[name].decode()
        rows = map(json.loads, text.splitlines() if name.endswith("l") else [text])
        found[name] = [{key: value for key, value in row.items() if key not in WALL_CLOCK} for row in rows]
    return found


def prepared(story: Story, place: Path) -> Path:
    """An empty place, or one where a run was killed; returns the run folder."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    killed = place.with_name("killed")
    if story.killed_at and not killed.exists():

        def work() -> int:
            with Calls(place, Fault(story.killed_at, "before")):
                story.go(place / "run", False)
            return 0

        assert forked(work) == -9
        place.rename(killed)
    if story.killed_at:
        shutil.copytree(killed, place, dirs_exist_ok=True)
    return place / "run"


def whole(story: Story, place: Path) -> tuple[dict[str, Any], dict[str, bytes | None], list[Call]]:
    """What an undisturbed run leaves, its acknowledged checkpoints by name, and the calls it makes."""
    out = prepared(story, place)
    seen = tree(out / "checkpoints")
    real = checkpoint.save_step

    def save_step(folder: Path, step: int, *more: Any, **rest: Any) -> None:
        real(folder, step, *more, **rest)
        if folder.name == "checkpoints":
            seen.update({f"step-{step}/{name}": data for name, data in tree(folder / f"step-{step}").items()})

    with mock.patch.object(checkpoint, "save_step", save_step), Calls(place) as calls:
        story.go(out, out.exists())
    return result(out), seen, calls.made


def process(story: Story, out: Path, fault: Fault) -> tuple[int, int | None, str]:
    """Run in a child that is struck: exit code, last acknowledged step, and what it said."""
    acknowledged, says = out.parent.with_suffix(".acks"), out.parent.with_suffix(".err")
    acknowledged.unlink(missing_ok=True)
    real = checkpoint.save_step

    def save_step(folder: Path, step: int, *more: Any, **rest: Any) -> None:
        real(folder, step, *more, **rest)
        if folder.name == "checkpoints":
            handle = REAL["open"](acknowledged, os.O_WRONLY | os.O_CREAT, 0o600)
            REAL["write"](handle, f"{step:6d}".encode())
            REAL["close"](handle)

    def work() -> int:
        with mock.patch.object(checkpoint, "save_step", save_step), Calls(out.parent, fault) as calls:
            try:
                story.go(out, out.exists())
            except Exception as problem:
                try:
                    fail(*explain_error(problem))
                except SystemExit as left:
                    return int(str(left.code))
            assert calls.struck, "the call was not made"
        return 0

    code = forked(work, says)
    last = int(acknowledged.read_text()) if acknowledged.exists() else None
    return code, last, says.read_text()


def strike(story: Story, fault: Fault, place: Path, wanted: dict[str, Any], saved: dict[str, bytes | None]) -> None:
    """Strike a run at one call and let the same command go on.

    Raises:
        AssertionError: something was lost, was said wrongly, or ends on other bits.
    """
    out = prepared(story, place)
    before = checkpoint.steps(out / "checkpoints")
    code, last, said = process(story, out, fault)
    if fault.error is None:
        assert code == -9, f"exit code {code}: {said}"
    else:
        check_words(fault, code, said, out)
    known = [*before[-1:], *([last] if last is not None else [])]
    step, loaded, warnings = checkpoint.load_newest(out / "checkpoints")
    assert warnings == []
    assert step >= max(known, default=0), f"step {max(known)} was acknowledged, {step} is the newest that loads"
    if loaded:
        found = tree(out / "checkpoints" / f"step-{step}")
        assert all(saved[f"step-{step}/{name}"] == data for name, data in found.items()), f"step {step} has other bits"
        rows = RunFolder(out).read_metrics()
        assert [row["step"] for row in rows][:step] == list(range(1, step + 1)), "rows of acknowledged steps are gone"
    with Calls(place):
        story.go(out, out.exists())
    found = result(out)
    other = [name for name in sorted(found.keys() | wanted.keys()) if found.get(name) != wanted.get(name)]
    assert other == [], f"other than in an undisturbed run: {other}"


def check_words(fault: Fault, code: int, said: str, out: Path) -> None:
    """What a person is told when the disk fails: one line with the path, the sizes where they are known, the remedy."""
    lines = said.splitlines()
    assert [line[:15] for line in lines] == ["pmdkit: error: "], said
    assert str(out) in said, said
    if code == 3:  # before anything was computed
        assert "cannot be written" in said, said
        assert "--out" in said, said
        assert not (out / "config.json").exists(), said
    else:
        assert code == 1, f"exit code {code}: {said}"
        assert "--resume" in said, said
    if fault.error in (ENOSPC, EDQUOT) and fault.when == "half":
        assert "to write" in said, said


def survive(story: Story, place: Path, faults: Callable[[list[Call]], Iterator[Fault]]) -> tuple[int, list[str]]:
    """Strike a run at all points of a plan; how many there are, and what went wrong at which."""
    with mock.patch("pmdkit.observe.run_folder.describe_machine", return_value={}):  # looking up versions takes long
        wanted, saved, calls = whole(story, place / "whole")
        planned = [fault for fault in faults(calls) if any(part in calls[fault.at - 1].path for part in story.about)]
        wrong = []
        for fault in planned:
            try:
                strike(story, fault, place / "struck", wanted, saved)
            except (AssertionError, OSError, ValueError, PmdkitError) as problem:
                wrong.append(f"{story.name}, {fault}, {calls[fault.at - 1]}: {type(problem).__name__}: {problem}")
        return len(planned), wrong


def kills(calls: list[Call]) -> Iterator[Fault]:
    """Before each call, and in the middle of each write."""
    for number, call in enumerate(calls, 1):
        yield Fault(number, "before")
        if call.kind == "write":
            yield Fault(number, "half")
