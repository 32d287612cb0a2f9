"""Planted bugs in what a resumed run restores, draws, measures and locks."""

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pmdkit import loop, trainer, training
from pmdkit.bandit.learner import BanditLearner
from pmdkit.envs import BanditTask
from pmdkit.envs.tokens import TokenTask
from pmdkit.errors import EnvironmentLacks
from pmdkit.observe import checkpoint, metrics
from pmdkit.observe.run_folder import RunFolder
from pmdkit.toy.learner import ToyLearner

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

    training.locked = locked
