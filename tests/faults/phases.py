"""The phases of a run as its own process sees them: every entry and exit is told, and at one of them a signal can fall.

A signal that is aimed falls after a counted number of calls inside of a phase, so it falls at the same place on any
machine. How signals at random times are sent is fork_server.py.
"""

import hashlib
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

PLACES = {
    "rollout": (
        "pmdkit.bandit.learner:BanditLearner.rollout",
        "pmdkit.toy.learner:ToyLearner.rollout",
        "pmdkit.llm.learner:CausalLearner.rollout",
        "pmdkit.llm.rollouts:RolloutQueue.submit",
        "pmdkit.llm.rollouts:RolloutQueue.collect",
        "pmdkit.llm.rollouts:RolloutQueue.write",  # in a thread of its own
    ),
    "reward": (
        "pmdkit.envs:BanditTask.reward",
        "pmdkit.envs.tokens:TokenTask.reward",
        "pmdkit.llm.task:MathTask.reward",
    ),
    "update": (
        "pmdkit.bandit.learner:BanditLearner.update",
        "pmdkit.toy.learner:ToyLearner.update",
        "pmdkit.llm.learner:CausalLearner.update",
    ),
    "publish": (
        "pmdkit.llm.learner:CausalLearner.sync_weights",
        "pmdkit.llm.engines.distributed:DistributedEngine.push_weights",
    ),
    "checkpoint": ("pmdkit.observe.checkpoint:save_step",),
    "write": ("pmdkit.observe.files:write",),  # one file of a checkpoint, or another one
    "prune": ("pmdkit.observe.checkpoint:prune",),  # inside of a checkpoint, and once in a resume
    "evaluation": (
        "pmdkit.bandit.metrics:evaluate",
        "pmdkit.toy.learner:HeldOutEvaluation.__call__",
        "pmdkit.llm.callbacks:EvaluationCallback.evaluate",
    ),
    "build": ("pmdkit.training:build",),
    "load": (
        "pmdkit.observe.checkpoint:load_newest",
        "pmdkit.bandit.learner:BanditLearner.load_state_dict",
        "pmdkit.toy.learner:ToyLearner.load_state_dict",
        "pmdkit.llm.learner:CausalLearner.load_state_dict",
    ),
    "rewind": ("pmdkit.observe.run_folder:RunFolder.begin", "pmdkit.observe.run_folder:RunFolder.rewind"),
    "phase 0": ("pmdkit.toy.pretrain:warm_start", "pmdkit.llm.starter.warm_start:warm_start"),
    "draw": (
        "pmdkit.llm.callbacks:EvaluationCallback.draw",
    ),  # inside of an evaluation: responses are written, not read
    "metrics": ("pmdkit.observe.metrics:append",),
    "record": ("pmdkit.replay.recorder:Recorder.record", "pmdkit.llm.callbacks:ResponsesCallback.record"),
}


@dataclass(frozen=True)
class Aim:
    """Where a signal falls: `calls` calls after the `entry`-th entry of a phase, at its end at the latest.

    Attributes:
        phase, entry, calls: as said; entries count from 1.
        numbers: signals, one or two.
        gap: calls between the two.
    """

    phase: str
    entry: int
    calls: int
    numbers: tuple[int, ...] = (signal.SIGKILL,)
    gap: int = 0


@dataclass(frozen=True)
class Event:
    """One line of the trace: "+" entry, "-" return, "!" exception, "*" a signal falls.

    Attributes:
        mark, phase, thread: what happened where; thread "" is the main one.
        seconds: since the system started.
        value: step, name or digest of what the phase is about; after "-" of a counted trace the calls it took.
    """

    mark: str
    phase: str
    thread: str
    seconds: float
    value: str

    @classmethod
    def read(cls, line: str) -> "Event":
        """From a line of the pipe."""
        mark, phase, thread, seconds, value = line.split("\t")
        return cls(mark, phase, thread, float(seconds), value)


class Trace:
    """Tells what a process does, line by line, into a pipe.

    Args:
        pipe: descriptor to write to.
        aim: where a signal falls, or None.
        counted: also count the calls of each phase, which takes twice as long.
    """

    def __init__(self, pipe: int, aim: Aim | None = None, counted: bool = False) -> None:
        self.pipe = pipe
        self.aim = aim
        self.counted = counted
        self.entries: Counter[str] = Counter()
        self.calls = 0

    def install(self) -> None:
        """Wrap every phase, in this process for good."""
        for place in (place for places in PLACES.values() for place in places):
            import_module(place.partition(":")[0])  # all of them first: phase 0 keeps its own, unwatched checkpoints
        for phase, places in PLACES.items():
            for place in places:
                self.wrap(place, phase)
        if self.counted:
            threading.setprofile(self.count)
            sys.setprofile(self.count)

    def wrap(self, place: str, phase: str) -> None:
        """Tell the entries and exits of one function."""
        module, _, path = place.partition(":")
        home: Any = import_module(module)
        *owners, name = path.split(".")
        for owner in owners:
            home = getattr(home, owner)
        work, about = getattr(home, name), ABOUT.get(phase, lambda *given: "")

        def watched(*given: Any, **named: Any) -> Any:
            value = about(*given)
            self.entries[phase] += 1
            aim = self.aim if self.aim and (phase, self.entries[phase]) == (self.aim.phase, self.aim.entry) else None
            self.tell("+", phase, value)
            before, mark = self.calls, "!"
            if aim is not None:
                self.fire_after(aim.calls, aim)
            try:
                done = work(*given, **named)
                mark = "-"
                return done
            finally:
                if aim is not None and aim is self.aim:
                    self.fire(aim)
                self.tell(mark, phase, f"{self.calls - before}" if self.counted else value)

        setattr(home, name, watched)

    def tell(self, mark: str, phase: str, value: str = "") -> None:
        """One line; short ones are written whole."""
        here = threading.current_thread()
        thread = "" if here is threading.main_thread() else here.name
        os.write(self.pipe, f"{mark}\t{phase}\t{thread}\t{time.monotonic():.6f}\t{value}\n".encode())

    def count(self, frame: Any, event: str, arg: Any) -> None:
        """One more call or return, of Python or C."""
        self.calls += 1

    def fire_after(self, calls: int, aim: Aim) -> None:
        """Send the next signal of an aim after so many calls in this thread."""
        left = calls

        def countdown(frame: Any, event: str, arg: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                self.fire(aim)

        sys.setprofile(countdown)

    def fire(self, aim: Aim) -> None:
        """Send it, to this process."""
        sys.setprofile(None)
        number, *rest = aim.numbers
        self.aim = Aim("", 0, 0, tuple(rest), aim.gap) if rest else None
        self.tell("*", signal.Signals(number).name)
        if self.aim is not None:
            self.fire_after(self.aim.gap, self.aim)
        os.kill(os.getpid(), number)


def digest_of(learner: Any, objective: Any, rollouts: Any, batch: Any) -> str:
    """The step, and a digest of everything an update is given."""
    digest = hashlib.blake2b(digest_size=8)
    for tensor in (
        rollouts.prompts,
        rollouts.responses,
        rollouts.logp_old,
        rollouts.mask,
        batch.advantage,
        batch.weight,
    ):
        digest.update(tensor.detach().contiguous().numpy().tobytes())
    return f"{learner.version + 1} {rollouts.version} {digest.hexdigest()}"


ABOUT: dict[str, Callable[..., str]] = {
    "update": digest_of,
    "checkpoint": lambda folder, step, *rest: str(step),
    "metrics": lambda path, row: str(row["step"]),
    "draw": lambda stages, record: "" if record is None else record.stem,
}
