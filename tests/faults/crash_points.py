"""Jobs on a folder and whole runs, killed or failing between two calls, and what must hold afterwards.

A scene is one job: a save, a row of metrics, an evaluation. It is prepared, disturbed at one call, looked at, and then
done again as the next process would; it must end on the files of a scene that nothing disturbed.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from errno import EDQUOT, EIO, ENOSPC, EROFS
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from pmdkit import train
from pmdkit.cli import explain_error, fail
from pmdkit.errors import PmdkitError
from pmdkit.llm import evaluate
from pmdkit.observe import checkpoint, files
from pmdkit.observe.run_folder import RunFolder
from strict_answers import Verdict

from .file_calls import REAL, Call, Calls, Fault, forked

ERRORS = (ENOSPC, EIO, EROFS, EDQUOT)


def state(step: int) -> dict[str, Any]:
    """A learner's state after a step, small, and different at every step."""
    tensors = torch.arange(6, dtype=torch.float32) + step
    slots = {0: {"step": torch.tensor(float(step)), "exp_avg": tensors / 7}}
    return {
        "model": {"weight": tensors.reshape(2, 3)},
        "optimizer": {"state": slots, "param_groups": [{"lr": 0.1 / (step + 1), "params": [0]}]},
        "version": step,
    }


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two states are the same to the last bit."""
    (held, plain), (others, rest) = checkpoint.split_state(one), checkpoint.split_state(other)
    encoded = [{part: checkpoint.encode_tensors(found) for part, found in some.items()} for some in (held, others)]
    return encoded[0] == encoded[1] and plain == rest


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes; folders too."""
    found = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in found}


@dataclass(frozen=True)
class Scene:
    """One job on a folder.

    Attributes:
        name: for people.
        prepare: makes what stands there before.
        act: the job, which is disturbed.
        look: what must hold at any moment: given the folder, and whether the job was acknowledged.
        again: what the next process does, from whatever stands there.
    """

    name: str
    prepare: Callable[[Path], None]
    act: Callable[[Path], None]
    look: Callable[[Path, bool], None]
    again: Callable[[Path], None]


def save_scene(name: str, before: list[int], step: int, keep: int, leftovers: bool = False) -> Scene:
    """Save a step over the checkpoints that are there."""

    def prepare(folder: Path) -> None:
        for number in before:
            checkpoint.save_step(folder, number, state(number), keep)
        if leftovers:
            for number in (step, step + 5):
                (folder / f".step-{number}.part").mkdir()
                (folder / f".step-{number}.part" / "model.safetensors").write_bytes(b"half")

    def act(folder: Path) -> None:
        checkpoint.save_step(folder, step, state(step), keep)

    def look(folder: Path, acknowledged: bool) -> None:
        found, loaded, warnings = checkpoint.load_newest(folder)
        allowed = {step} if acknowledged else {step, max(before, default=0)}
        assert found in allowed, f"step {found} is the newest, expected one of {allowed}"
        assert warnings == []
        assert loaded == {} if found == 0 else same(loaded, state(found))
        there = [number for number in before if number in checkpoint.steps(folder)]
        assert found == step or there == before, "an older checkpoint went before the new one was there"
        assert all(same(checkpoint.load_step(folder / f"step-{number}", number), state(number)) for number in there)

    def again(folder: Path) -> None:
        for number in range(checkpoint.load_newest(folder)[0] + 1, step + 2):
            if number >= step:  # the steps before it were done in `prepare`
                checkpoint.save_step(folder, number, state(number), keep)

    return Scene(name, prepare, act, look, again)


def row(step: int) -> dict[str, Any]:
    """A row of metrics."""
    empty = dict.fromkeys(("pass_rate", "log_ratio_min", "response_length", "gauge"))
    return {"step": step, "reward_mean": step / 8, "tokens": 3, "seconds_rollout": 0.5, "seconds_update": 0.5} | empty


def append_scene(step: int) -> Scene:
    """A row of metrics after those that are there; the next process drops what its checkpoint does not know."""
    folder_of = RunFolder

    def prepare(folder: Path) -> None:
        for number in range(1, step):
            RunFolder(folder).append_metrics(row(number))

    def look(folder: Path, acknowledged: bool) -> None:
        rows = folder_of(folder).read_metrics()
        assert rows in ([row(n) for n in range(1, step + more)] for more in ((1,) if acknowledged else (0, 1)))

    def again(folder: Path) -> None:
        folder_of(folder).rewind(step - 1)
        RunFolder(folder).append_metrics(row(step))

    return Scene(f"metrics row {step}", prepare, lambda f: folder_of(f).append_metrics(row(step)), look, again)


def replace_scene(old: bytes | None) -> Scene:
    """A file is put in place, or in place of another."""
    new = files.encode({"steps": 3})

    def act(folder: Path) -> None:
        files.replace(folder / "summary.json", new)

    def prepare(folder: Path) -> None:
        if old is not None:
            files.replace(folder / "summary.json", old)

    def look(folder: Path, acknowledged: bool) -> None:
        place = folder / "summary.json"
        assert (place.read_bytes() if place.exists() else None) in ([new] if acknowledged else [old, new])

    return Scene("a new file" if old is None else "a file replaced", prepare, act, look, act)


def rewind_scene() -> Scene:
    """Rows and recordings after a checkpoint are dropped."""

    def prepare(folder: Path) -> None:
        for number in range(1, 5):
            RunFolder(folder).append_metrics(row(number))
        with open(folder / "metrics.jsonl", "ab") as file:
            file.write(b'{"step": 5, "rew')
        (folder / "rollouts").mkdir()
        for number in range(1, 5):
            (folder / "rollouts" / f"step-{number}.jsonl").write_bytes(b"{}\n")

    def act(folder: Path) -> None:
        RunFolder(folder).rewind(2)

    def look(folder: Path, acknowledged: bool) -> None:
        rows = RunFolder(folder).read_metrics()
        assert rows in ([row(n) for n in range(1, last + 1)] for last in ((2,) if acknowledged else (2, 4)))
        assert (folder / "rollouts" / "step-2.jsonl").exists()

    return Scene("rewind", prepare, act, look, act)


def damaged_scene() -> Scene:
    """A damaged newest checkpoint is renamed, and the one before it is used."""

    def prepare(folder: Path) -> None:
        for number in (1, 2):
            checkpoint.save_step(folder, number, state(number), keep=2)
        (folder / "step-2" / "state.json").write_bytes(b"{}")

    def act(folder: Path) -> None:
        step, loaded, _ = checkpoint.load_newest(folder)
        assert step == 1
        assert same(loaded, state(1))

    return Scene("damaged", prepare, act, lambda folder, acknowledged: act(folder), act)


def answers(some: list[int]) -> list[evaluate.Answered]:
    """Two responses to each of some problems."""
    verdict = Verdict(True, "7", "integer", "equal", 1.0)
    return [evaluate.Answered(f"p{n}", k, f"so {n}", True, 4, verdict) for n in some for k in range(2)]


def evaluation_scene() -> Scene:
    """A turn of an evaluation is recorded, then the marker that it is done."""
    name = "held-out-step-2"

    def act(folder: Path) -> None:
        record = folder / "evaluations" / f"{name}.jsonl"
        done = evaluate.read_record(record, 2)
        for turn in ([0, 1], [2, 3]):
            if missing := [n for n in turn if f"p{n}" not in done]:
                evaluate.append(record, answers(missing))
        files.replace(record.with_suffix(".json"), files.encode({"step": 2, "scores": {"pass_rate": 1.0}}))

    def look(folder: Path, acknowledged: bool) -> None:
        record = folder / "evaluations" / f"{name}.jsonl"
        if record.with_suffix(".json").exists() or acknowledged:
            assert json.loads(record.with_suffix(".json").read_bytes())["step"] == 2
            assert len(record.read_bytes().splitlines()) == 8, "the marker stands, and responses are missing or double"

    return Scene("evaluation", lambda folder: None, act, look, act)


SCENES = {
    scene.name: scene
    for scene in (
        save_scene("first save", [], 1, 2),
        save_scene("middle save", [1], 2, 2),
        save_scene("pruning save", [1, 2], 3, 2),
        save_scene("save over leftovers", [1], 2, 2, leftovers=True),
        append_scene(3),
        replace_scene(b'{"steps": 2}\n'),
        rewind_scene(),
        damaged_scene(),
        evaluation_scene(),
    )
}


def points(scene: Scene, place: Path) -> Iterator[Fault]:
    """Every fault that can strike a scene: each call, before, after and in the middle, with each error and a kill.

    A kill after a call is one before the next. A disk that has failed goes on failing; EIO may also pass.
    """
    folder = fresh(scene, place)
    with Calls(folder) as calls:
        scene.act(folder)
    for number, call in enumerate(calls.made, 1):
        for when in ("before", "after", *(("half",) if call.kind == "write" else ())):
            if when != "after" or number == len(calls.made):
                yield Fault(number, when)
            yield Fault(number, when, EIO)
            for error in ERRORS:
                yield Fault(number, when, error, lasting=True)


def fresh(scene: Scene, place: Path) -> Path:
    """A folder as the scene finds it."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    with Calls(place):  # nothing is flushed
        scene.prepare(place)
    return place


def ends(scene: Scene, place: Path) -> dict[str, bytes | None]:
    """What an undisturbed scene leaves, once the next process has looked."""
    folder = fresh(scene, place)
    with Calls(folder):
        scene.act(folder)
        scene.again(folder)
    return tree(folder)


def strike(scene: Scene, fault: Fault, place: Path, wanted: dict[str, bytes | None]) -> None:
    """Disturb a scene at one point, and check all that must hold.

    Raises:
        AssertionError: something does not.
    """
    folder = fresh(scene, place)
    if fault.error is None:

        def work() -> int:
            with Calls(folder, fault):
                scene.act(folder)
            return 0

        assert forked(work) == -9, "the process was not killed"
        acknowledged = False
    else:
        acknowledged = fail_scene(scene, fault, folder)
    scene.look(folder, acknowledged)
    with Calls(folder):
        scene.again(folder)
    assert tree(folder) == wanted, "it does not end on the files of an undisturbed run"


def fail_scene(scene: Scene, fault: Fault, folder: Path) -> bool:
    """Let a call of the scene fail; returns whether the job claims that it is done."""
    told: Exception | None = None
    with Calls(folder, fault) as calls:
        try:
            scene.act(folder)
        except (OSError, PmdkitError) as problem:
            told = problem
    assert calls.struck, "the call was not made"
    struck = calls.made[fault.at - 1]
    if told is None and struck.kind == "mkdir" and fault.when == "after":
        return True  # the folder is there: nothing failed
    assert told is not None, f"{struck} failed, and nobody was told"
    if isinstance(told, OSError):
        assert str(told.filename).startswith(str(folder)), f"no path in {told!r}"
    if fault.error in (ENOSPC, EDQUOT) and struck.kind == "write":
        assert "to write" in str(told), f"no size in {told!r}"
        assert fault.error == EDQUOT or "free on the disk" in str(told), f"what is free is not in {told!r}"
    clean = not fault.lasting or fault.error in (ENOSPC, EDQUOT)
    mine = {call.path.split("/")[0] for call in calls.made if call.kind in ("open", "mkdir")}
    left = [path.name for path in folder.iterdir() if path.name in mine and path.name.endswith(".part")]
    pruning = any(call.kind == "rename" and call.target.endswith(".part") for call in calls.made)
    assert not clean or pruning or left == [], f"left behind: {left}"
    return False


def survive(scene: Scene, place: Path, most: int = 1000) -> tuple[int, list[str]]:
    """Strike every point of a scene; how many there are, and what went wrong at which, up to so many."""
    wanted = ends(scene, place / "whole")
    faults = list(points(scene, place / "counted"))
    wrong: list[str] = []
    for fault in faults:
        try:
            strike(scene, fault, place / "struck", wanted)
        except (AssertionError, OSError, ValueError, PmdkitError) as problem:
            wrong.append(f"{scene.name}, {fault}: {type(problem).__name__}: {problem}")
            if len(wrong) == most:
                break
    return len(faults), wrong


# Whole runs, struck at one call: who acknowledged which step, and what must hold afterwards.

OPTIONS = {"env.arms": 4, "update": "gradient", "keep": 2, "prompts": 2, "group": 2, "ministeps": 1, "seed": 5}
WALL_CLOCK = ("seconds_rollout", "seconds_update", "seconds", "out")


def bandit(out: Path, resume: bool, steps: int = 3) -> None:
    """A run whose steps take a millisecond: a first save, one in the middle, one that prunes."""
    train("pmd-mean", "bandit", "needle", out=out, resume=resume, options=OPTIONS, steps=steps)


@dataclass(frozen=True)
class RunStory:
    """A run and how far it is before it is struck.

    Attributes:
        name: for people.
        go: the command; with `resume` it goes on.
        killed_at: the call of a first process at which that one was killed; 0 for none.
    """

    name: str
    go: Callable[[Path, bool], None]
    killed_at: int = 0


def longer(out: Path, resume: bool) -> None:
    """Four steps, so that a resumed run saves and prunes."""
    bandit(out, resume, steps=4)


def stories(place: Path) -> dict[str, RunStory]:
    """The runs that are struck. A resumed one was killed when its third checkpoint was complete but not renamed."""
    place.mkdir(parents=True)
    with Calls(place) as calls:
        longer(place / "counted", False)
    third = [call.kind == "rename" and call.target.endswith("step-3") for call in calls.made].index(True)
    shutil.rmtree(place / "counted")
    found = [RunStory("a run", bandit), RunStory("a resumed run", longer, third + 1)]
    return {story.name: story for story in found}


def result(out: Path) -> dict[str, Any]:
    """Everything a run leaves but times: what two runs are compared by."""
    found: dict[str, Any] = tree(out)
    found.pop("run.lock")
    found.pop("restarts.json", None)  # says that a run was stopped
    for name in ("metrics.jsonl", "summary.json"):
        text = found[name].decode()
        rows = map(json.loads, text.splitlines() if name.endswith("l") else [text])
        found[name] = [{key: value for key, value in row.items() if key not in WALL_CLOCK} for row in rows]
    return found


def prepared(story: RunStory, place: Path) -> Path:
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


def whole(story: RunStory, place: Path) -> tuple[dict[str, Any], dict[str, bytes | None], list[Call]]:
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


def process(story: RunStory, out: Path, fault: Fault) -> tuple[int, int | None, str]:
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


def strike_run(
    story: RunStory, fault: Fault, place: Path, wanted: dict[str, Any], saved: dict[str, bytes | None]
) -> None:
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


def survive_run(story: RunStory, place: Path, faults: Callable[[list[Call]], Iterator[Fault]]) -> tuple[int, list[str]]:
    """Strike a run at all points of a plan; how many there are, and what went wrong at which."""
    with mock.patch("pmdkit.observe.run_folder.describe_machine", return_value={}):  # looking up versions takes long
        wanted, saved, calls = whole(story, place / "whole")
        planned = list(faults(calls))
        wrong = []
        for fault in planned:
            try:
                strike_run(story, fault, place / "struck", wanted, saved)
            except (AssertionError, OSError, ValueError, PmdkitError) as problem:
                wrong.append(f"{story.name}, {fault}, {calls[fault.at - 1]}: {type(problem).__name__}: {problem}")
        return len(planned), wrong


def failures(calls: list[Call]) -> Iterator[Fault]:
    """Each call fails once, the errors in turn, before it or in its middle, and the disk stays as it is."""
    locked = False
    for number, call in enumerate(calls, 1):
        if call.path == "run/run.lock" and (call.kind != "open" or locked):  # what is written there decides nothing
            continue
        locked = locked or call.path == "run/run.lock"
        yield Fault(number, "half" if call.kind == "write" else "before", ERRORS[number % len(ERRORS)], lasting=True)


def kills(calls: list[Call]) -> Iterator[Fault]:
    """Before each call, and in the middle of each write."""
    for number, call in enumerate(calls, 1):
        yield Fault(number, "before")
        if call.kind == "write":
            yield Fault(number, "half")
