"""Planted bugs, which the kill tests have to see: how each is made, and, in BUGS, what each is and where it is planted.

A bug is planted in a child before its run, also in the undisturbed run that the others are compared with: a program is
compared with itself. Each replaces what it must and leaves the format to the real code.
"""

import json
import os
import pickle
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from pmdkit import loop, trainer, training
from pmdkit.bandit.learner import BanditLearner
from pmdkit.envs import BanditTask
from pmdkit.envs.tokens import TokenTask
from pmdkit.errors import EnvironmentLacks
from pmdkit.llm import evaluate, rollouts
from pmdkit.llm.callbacks import evaluation
from pmdkit.observe import checkpoint, files, metrics
from pmdkit.observe.run_folder import RunFolder
from pmdkit.toy.learner import ToyLearner

Save = Callable[..., None]


def replace_save(make: Callable[[Save], Save]) -> None:
    """Another `save_step`, made from the real one."""
    checkpoint.save_step = make(checkpoint.save_step)


def in_place() -> None:
    """Files are written into step-N one by one; there is nothing to rename."""
    write, rename = files.write, os.rename

    def write_in_place(path: Path, data: bytes, *more: Any, **rest: Any) -> None:
        unfinished = re.fullmatch(r"\.(step-\d+)\.part", path.parent.name)
        if unfinished:
            path = path.parent.with_name(unfinished[1]) / path.name
            path.parent.mkdir(exist_ok=True)
        write(path, data, *more, **rest)

    def rename_nothing(source: Path, target: Path) -> None:
        if source.name.endswith(".part"):
            source.rmdir()
        else:
            rename(source, target)

    files.write, os.rename = write_in_place, rename_nothing


def prune_first() -> None:
    """Room is made for the new checkpoint before it is written."""

    def make(real: Save) -> Save:
        def save(folder: Path, step: int, state: Any, keep: int, beside: Any = None) -> None:
            found = checkpoint.steps(folder)
            for old in found[: len(found) - keep + 1]:
                checkpoint.journal_path(folder, old).unlink(missing_ok=True)
                shutil.rmtree(folder / f"step-{old}")
            real(folder, step, state, keep, beside)

        return save

    replace_save(make)


def take_unfinished() -> None:
    """The highest number is the newest checkpoint, whether it was finished or not, and nothing is checked."""

    def load_newest(folder: Path) -> tuple[int, dict[str, Any], list[str]]:
        found = {int(path.name.split("-")[1].split(".")[0]): path for path in folder.glob("*step-*")}
        if not found:
            return 0, {}, []
        path = found[max(found)].rename(folder / f"step-{max(found)}")
        state = json.loads((path / "state.json").read_bytes())
        tensors = {file.stem: load_file(file) for file in path.glob("*.safetensors")}
        optimizer = checkpoint.join_optimizer(tensors.pop("optimizer"), state.pop("optimizer"))
        return max(found), {**tensors, "optimizer": optimizer, **state}, []

    checkpoint.load_newest = load_newest


def acknowledge_early() -> None:
    """A checkpoint is written two turns later, as a writer in the background may do that is not waited for."""

    def make(real: Save) -> Save:
        waiting: list[tuple[Any, ...]] = []

        def save(folder: Path, step: int, state: Any, keep: int, beside: Any = None) -> None:
            waiting.append((folder, step, deepcopy(state), keep, beside))
            if len(waiting) > 2 or step == 6 or not checkpoint.steps(folder):  # the run looks at its first one
                for one in waiting:
                    real(*one)
                waiting.clear()

        return save

    replace_save(make)


def write_outside() -> None:
    """What is to be written is put together in a temporary file."""

    def make(real: Save) -> Save:
        def save(folder: Path, step: int, state: Any, keep: int, beside: Any = None) -> None:
            with tempfile.NamedTemporaryFile() as file:
                file.write(b"weights")
                real(folder, step, state, keep, beside)

        return save

    replace_save(make)


def mix() -> None:
    """Each checkpoint has the optimizer's state of the one before."""

    def make(real: Save) -> Save:
        before: list[Any] = []

        def save(folder: Path, step: int, state: Any, keep: int, beside: Any = None) -> None:
            before.append(deepcopy(state["optimizer"]))
            real(folder, step, {**state, "optimizer": before[-2:][0]}, keep, beside)

        return save

    replace_save(make)


# In what a resumed run restores, draws, measures and locks.

LEARNERS: tuple[Any, ...] = (BanditLearner, ToyLearner)


def around_all(homes: tuple[Any, ...], name: str, make: Callable[[Any], Any]) -> None:
    """The same function of several classes, made from the real ones."""
    for home in homes:
        setattr(home, name, make(getattr(home, name)))


def note_resume() -> list[bool]:
    """A list that gets an element when a learner is restored."""
    resumed: list[bool] = []

    def make(real: Any) -> Any:
        def load_state_dict(self: Any, state: dict[str, Any]) -> None:
            resumed.append(True)
            real(self, state)

        return load_state_dict

    around_all(LEARNERS, "load_state_dict", make)
    return resumed


def from_zero() -> None:
    """What was saved is not looked for."""
    checkpoint.load_newest = lambda folder: (0, {}, [])


def no_optimizer() -> None:
    """The optimizer starts with nothing."""

    def make(real: Any) -> Any:
        return lambda self, state: real(self, {**state, "optimizer": self.optimizer.state_dict()})

    around_all(LEARNERS, "load_state_dict", make)


def restart_schedule() -> None:
    """The learning rate falls with the updates of this process."""

    def make(real: Any) -> Any:
        made = 0

        def update(self: Any, *given: Any) -> Any:
            nonlocal made
            made += 1
            for group in self.optimizer.param_groups:
                group["lr"] = 1e-2 * 0.95**made
            return real(self, *given)

        return update

    around_all(LEARNERS, "update", make)


def shift_data() -> None:
    """A resumed run asks the prompts of the step before."""
    resumed = note_resume()

    def make(real: Any) -> Any:
        return lambda self, step: real(self, step - len(resumed))

    around_all((TokenTask, BanditTask), "prompts", make)


def skip_step() -> None:
    """A resumed run begins one step too late."""
    real = trainer.run

    def run(*given: Any) -> None:
        real(*given[:-1], given[-1] + 1 if given[-1] else 0)

    trainer.run = run


def global_seeds() -> None:
    """Each rollout is seeded by the next number of a generator that is not saved."""
    generator = random.Random(3)
    loop.derive = lambda *address: generator.getrandbits(63)


def clock_seeds() -> None:
    """A resumed run takes the clock for its seed."""
    resumed, real = note_resume(), loop.derive
    loop.derive = lambda *address: time.time_ns() if resumed else real(*address)


def keep_metrics() -> None:
    """Nothing is dropped when a run goes on."""
    RunFolder.rewind = lambda self, step: None


def cut_metrics() -> None:
    """The last acknowledged step loses its line."""
    real = RunFolder.rewind
    RunFolder.rewind = lambda self, step: real(self, step - 1)


def buffer_metrics() -> None:
    """Lines are written two at a time."""
    write = metrics.append
    waiting: list[tuple[Path, dict[str, Any]]] = []

    def append(path: Path, row: dict[str, Any]) -> None:
        waiting.append((path, row))
        if row["step"] % 2 == 0:
            for one in waiting:
                write(*one)
            waiting.clear()

    metrics.append = append


def short_summary() -> None:
    """Tokens and seconds are added up over the steps of this process."""
    real, rows = metrics.append, []

    def append(path: Path, row: dict[str, Any]) -> None:
        rows.append(row)
        real(path, row)

    metrics.append = append
    RunFolder.read_metrics = lambda self: rows


def lasting_lock() -> None:
    """The lock is a file that its owner removes, if he lives."""

    @contextmanager
    def locked(folder: RunFolder) -> Iterator[None]:
        mark = folder.path / ".locked"
        try:
            mark.touch(exist_ok=False)
        except FileExistsError as problem:
            raise EnvironmentLacks("in use") from problem
        try:
            yield
        finally:
            mark.unlink()

    trainer.locked = locked


# In what is done with rollouts, evaluations and the verifier's processes.

DEAF = (
    "import runpy, sys, time; import strict_answers.worker as worker; "
    "worker.die_with_parent = lambda parent: None; heard = worker.receive; "
    "worker.receive = lambda pipe: heard(pipe) or time.sleep(600); "
    "import json; worker.main(json.loads(sys.argv[1]))"
)


def reuse() -> None:
    """The rollout that was written down last is used first after a resume, whatever step and policy it is of."""
    run, folders, used = training.fit, [], []

    def execute(spec: Any, objective: Any, setup: Any, folder: Any, display: Any) -> Any:
        folders.append(folder.path)
        summary = run(spec, objective, setup, folder, display)
        (folder.path / ".journal").unlink()
        return summary

    def make(real: Any) -> Any:
        def rollout(self: Any, *given: Any, **named: Any) -> Any:
            journal: Path = folders[0] / ".journal"
            if journal.exists() and not used:
                used.append(True)
                return pickle.loads(journal.read_bytes())
            used.append(True)
            found = real(self, *given, **named)
            (folders[0] / ".journal.new").write_bytes(pickle.dumps(found))
            os.replace(folders[0] / ".journal.new", journal)
            return found

        return rollout

    training.fit = execute
    around_all((BanditLearner, ToyLearner), "rollout", make)


def lose_pending() -> None:
    """What was written ahead of a checkpoint is written again, by the weights of the checkpoint."""
    rollouts.RolloutQueue.load_state_dict = lambda self, state: None


def recompute_old() -> None:
    """pi_old of a rollout from a checkpoint is scored by the present weights."""
    restored, real = set[int](), rollouts.RolloutQueue.collect
    load = rollouts.RolloutQueue.load_state_dict

    def load_state_dict(self: Any, state: Any) -> None:
        load(self, state)
        restored.update(self.restored)

    def collect(self: Any, request: Any) -> Any:
        found = real(self, request)
        return replace(found, logp_old=self.learner.logp(found).detach()) if request.seed in restored else found

    rollouts.RolloutQueue.load_state_dict = load_state_dict
    rollouts.RolloutQueue.collect = collect


def evaluate_again() -> None:
    """Whether an evaluation is done is not looked at."""
    real = evaluation.EvaluationCallback.evaluate

    def again(self: Any) -> Any:
        name = f"{self.evaluation.name}-step-{self.learner.version}"
        for ending in (".json", ".jsonl"):
            (self.folder.evaluations / f"{name}{ending}").unlink(missing_ok=True)
        return real(self)

    evaluation.EvaluationCallback.evaluate = again


def count_twice() -> None:
    """An evaluation that was interrupted begins anew and leaves its record as it is."""
    evaluate.read_record = lambda record, k: {}


def orphan() -> None:
    """A worker of the verifier does not notice that its run is gone."""
    real = subprocess.Popen

    class Popen(real):  # type: ignore[misc, valid-type]
        def __init__(self, command: list[str], **options: Any) -> None:
            deaf = "strict_answers.worker" in command
            super().__init__([sys.executable, "-c", DEAF, command[-1]] if deaf else command, **options)

    subprocess.Popen = Popen


# The bugs, and the runs they are planted in.

TOY = ("toy", "toy-taught", "toy-rloo", "bandit")
LLM = ("llm", "llm-rloo", "llm-reference")
LAG = ("llm-lag", "llm-lag-2")


@dataclass(frozen=True)
class Bug:
    """A bug.

    Attributes:
        plant: puts it into this process for good.
        cases: the runs that it is looked for in.
        most: kills within which it has to be seen.
    """

    plant: Callable[[], None]
    cases: tuple[str, ...]
    most: int = 100


CONTROL = "no bug"

BUGS = {
    CONTROL: Bug(lambda: None, (*TOY, *LLM, *LAG), most=20),
    "checkpoint written in place": Bug(in_place, TOY),
    "old checkpoint deleted first": Bug(prune_first, TOY),
    "unfinished checkpoint is the newest": Bug(take_unfinished, TOY),
    "acknowledged before it is written": Bug(acknowledge_early, TOY),
    "temporary file outside of the run": Bug(write_outside, TOY),
    "optimizer of the checkpoint before": Bug(mix, TOY),
    "starts again from zero": Bug(from_zero, TOY),
    "optimizer not restored": Bug(no_optimizer, TOY),
    "learning rate's schedule starts again": Bug(restart_schedule, TOY),
    "data position off by one": Bug(shift_data, TOY),
    "a step is skipped": Bug(skip_step, TOY),
    "seeds from a global generator": Bug(global_seeds, TOY),
    "resumed run is seeded by the clock": Bug(clock_seeds, TOY),
    "metrics not truncated": Bug(keep_metrics, TOY),
    "metrics of the last step truncated": Bug(cut_metrics, TOY),
    "metrics buffered": Bug(buffer_metrics, TOY),
    "summary of the last process only": Bug(short_summary, TOY),
    "lock survives its owner": Bug(lasting_lock, TOY),
    "rollout of another step used again": Bug(reuse, TOY),
    "pending rollouts lost": Bug(lose_pending, LAG),
    "old log-probabilities recomputed after updates": Bug(recompute_old, LAG),
    "evaluation done again": Bug(evaluate_again, LLM),
    "evaluation counted twice": Bug(count_twice, LLM),
    "verifier survives": Bug(orphan, LLM),
}
