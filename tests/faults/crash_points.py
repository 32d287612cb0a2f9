"""A run killed or failing at one of the calls that change its folder, then resumed by the same command.

Whatever struck it, no acknowledged step is lost, and in the end it has the bits of a run that nothing disturbed.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from errno import EDQUOT, EIO, ENOSPC, EROFS
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from pmdkit import train
from pmdkit.cli import explain_error, fail
from pmdkit.errors import PmdkitError
from pmdkit.observe import checkpoint
from pmdkit.observe.run_folder import RunFolder

from .file_calls import Call, Calls, Fault, forked

ERRORS = (ENOSPC, EIO, EROFS, EDQUOT)
OPTIONS = {"env.arms": 4, "update": "gradient", "keep": 2, "prompts": 2, "group": 2, "ministeps": 1, "seed": 5}
WALL_CLOCK = ("seconds_rollout", "seconds_update", "seconds", "out")


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


class StruckRun:
    """A run whose steps take a millisecond: a first save, one in the middle, one that prunes.

    Or, `resumed`, one whose first process was killed when its third checkpoint was complete but not renamed.
    Undisturbed it makes `calls`, acknowledges the files of `saved`, and leaves `wanted`.
    """

    def __init__(self, place: Path, resumed: bool = False) -> None:
        self.steps = 4 if resumed else 3  # so that a resumed run saves and prunes too
        self.begun, self.live, self.acknowledged = place / "begun", place / "live", place / "acknowledged"
        self.begun.mkdir()
        if resumed:
            calls = self.go()
            renamed = [call.kind == "rename" and call.target.endswith("step-3") for call in calls].index(True)
            self.prepare()
            assert self.strike(Fault(renamed + 1, "before"))[0] == -9
            shutil.copytree(self.live, self.begun, dirs_exist_ok=True)
        self.prepare()
        self.saved = tree(self.out / "checkpoints")
        self.calls = self.go(acknowledge=lambda path: self.saved.update(tree_of_step(path)))
        self.wanted = self.result()

    @property
    def out(self) -> Path:
        """The folder of the run."""
        return self.live / "run"

    def prepare(self) -> None:
        """Put there what stands before the run is struck."""
        shutil.rmtree(self.live, ignore_errors=True)
        shutil.copytree(self.begun, self.live)

    def go(self, fault: Fault | None = None, acknowledge: Callable[[Path], Any] = str) -> list[Call]:
        """The command, up to its end or to a fault; `acknowledge` has the folder of each checkpoint that is saved."""
        save = checkpoint.Checkpoints.save
        self.live.mkdir(exist_ok=True)

        def saved(self: checkpoint.Checkpoints, step: int, *more: Any) -> None:
            save(self, step, *more)
            acknowledge(self.folder / f"step-{step}")

        with (
            mock.patch.object(checkpoint.Checkpoints, "save", saved),
            mock.patch("pmdkit.observe.run_folder.describe_machine", return_value={}),  # looking up versions takes long
            Calls(self.live, fault) as calls,
        ):
            train(env="needle", out=self.out, resume=self.out.exists(), options=OPTIONS, steps=self.steps)
        return calls.made

    def strike(self, fault: Fault) -> tuple[int, str]:
        """Run it in a child that is struck: the exit code, and stderr."""

        def work() -> int:
            try:
                self.go(fault, lambda path: self.acknowledged.write_text(path.name.removeprefix("step-")))
            except Exception as problem:
                try:
                    fail(*explain_error(problem))
                except SystemExit as left:
                    return int(str(left.code))
            return 0

        says = self.live.with_name("stderr")
        return forked(work, says), says.read_text()

    def result(self) -> dict[str, Any]:
        """Everything a run leaves but times: what two runs are compared by."""
        found: dict[str, Any] = tree(self.out)
        found.pop("run.lock")
        found.pop("restarts.json", None)  # says that a run was stopped
        for name in ("metrics.jsonl", "summary.json"):
            rows = map(json.loads, found[name].splitlines() if name.endswith("l") else [found[name]])
            found[name] = [{key: value for key, value in row.items() if key not in WALL_CLOCK} for row in rows]
        return found

    def check(self, fault: Fault) -> None:
        """Strike it at one call, look, and let the same command go on: nothing is lost or ends on other bits."""
        self.prepare()
        self.acknowledged.write_text(str(max(checkpoint.steps(self.out / "checkpoints"), default=0)))
        code, said = self.strike(fault)
        if fault.error is None:
            assert code == -9, f"exit code {code}: {said}"
        else:
            # Exit 3 is an environment that lacks something: it is found before anything is computed.
            assert [line[:15] for line in said.splitlines()] == ["pmdkit: error: "], said
            assert str(self.out) in said, said
            assert code == 1 or (code == 3 and not (self.out / "config.json").exists()), f"exit code {code}: {said}"
            assert "to write" in said or fault.when != "half" or fault.error not in (ENOSPC, EDQUOT), said
        step, loaded, warnings = checkpoint.Checkpoints(self.out / "checkpoints").load_newest()
        assert warnings == []
        assert step >= int(self.acknowledged.read_text()), f"step {step} is the newest that loads"
        if loaded:
            found = tree_of_step(self.out / "checkpoints" / f"step-{step}")
            assert found.items() <= self.saved.items(), f"step {step} has other bits"
            rows = RunFolder(self.out).read_metrics()
            assert [row["step"] for row in rows][:step] == list(range(1, step + 1)), "rows of saved steps are gone"
        self.go()
        left = self.result()
        other = [name for name in sorted(left.keys() | self.wanted.keys()) if left.get(name) != self.wanted.get(name)]
        assert other == [], f"other than in an undisturbed run: {other}"

    def wrong(self, faults: list[Fault]) -> list[str]:
        """What went wrong at which of the faults."""
        found = []
        for fault in faults:
            try:
                self.check(fault)
            except (AssertionError, OSError, ValueError, PmdkitError) as problem:
                found.append(f"{fault}, {self.calls[fault.at - 1]}: {type(problem).__name__}: {problem}")
        return found


def tree_of_step(path: Path) -> dict[str, bytes | None]:
    """The files of a checkpoint, by a name that holds its step."""
    return {f"{path.name}/{name}": data for name, data in tree(path).items()}


def kills(calls: list[Call]) -> Iterator[Fault]:
    """Before each call, and in the middle of each write; a kill after a call is one before the next."""
    for number, call in enumerate(calls, 1):
        yield Fault(number, "before")
        if call.kind == "write":
            yield Fault(number, "half")


def failures(calls: list[Call]) -> Iterator[Fault]:
    """Each call fails once, the errors in turn, before it or in its middle, and the disk stays as it is."""
    locked = False
    for number, call in enumerate(calls, 1):
        if call.path == "run/run.lock" and (call.kind != "open" or locked):  # what is written there decides nothing
            continue
        locked = locked or call.path == "run/run.lock"
        yield Fault(number, "half" if call.kind == "write" else "before", ERRORS[number % len(ERRORS)])
