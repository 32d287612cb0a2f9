"""One run in one folder: restore, train, measure, checkpoint, summarise. The same for all backends."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from pmdkit.errors import Stopped
from pmdkit.learner import Learner, Rollouts, Task
from pmdkit.loop import Schedule, run
from pmdkit.objectives import Groups, Objective
from pmdkit.objectives.vocabulary import Batch
from pmdkit.observe import checkpoint, files, metrics
from pmdkit.observe.folder import RunFolder
from pmdkit.spec import Spec

Row = dict[str, Any]


@dataclass(frozen=True)
class Setup:
    """What a backend builds from a spec.

    Attributes:
        learner, task, schedule: for the loop.
        meter: called once the learner is restored; gives the function that turns a finished step into a row of metrics.
        evaluate: `pass_rate` and `reward` of the current policy on a fixed set of problems.
        policy: the policy in the tier's own form (bandit: [S, A] probabilities; toy: the model).
        prepare: phase 0, before the first evaluation: a supervised warm start. Checkpointed as step 0.
    """

    learner: Learner
    task: Task
    schedule: Schedule
    meter: Callable[[], Callable[..., Row]]
    evaluate: Callable[[], dict[str, float | None]]
    policy: Callable[[], Any]
    prepare: Callable[[Callable[[str], None]], None] | None = None


class Display(Protocol):
    """Whoever watches a run: a terminal, a log, nobody."""

    def begin(self, spec: Spec, start: int) -> None:
        """Before the first step of this process."""

    def show(self, row: Row) -> None:
        """After each step."""

    def warn(self, sentence: str) -> None:
        """Something a person should know."""

    def note(self, sentence: str) -> None:
        """What goes on before the first step."""

    def end(self) -> None:
        """After the last step, or when the run ends early."""


def execute(spec: Spec, objective: Objective, setup: Setup, folder: RunFolder, display: Display) -> Row:
    """Run to the last step from wherever the folder stands; returns the summary.

    Whatever the last checkpoint acknowledged is not computed again; whatever came after it is dropped and computed
    again from the seed, to the same bits.
    """
    torch.set_num_threads(spec.run.threads)
    start, state, warnings = checkpoint.load_newest(folder.checkpoints)
    for warning in warnings:
        display.warn(warning)
    if state:
        first = state.pop("first")
        setup.learner.load_state_dict(state)
    else:
        if setup.prepare is not None:
            with stop_at_once("stopped before the first step, nothing was lost; run again with --resume"):
                setup.prepare(display.note)
        first = setup.evaluate()
        if setup.prepare is not None:
            checkpoint.save_step(folder.checkpoints, 0, {**setup.learner.state_dict(), "first": first}, spec.run.keep)
    folder.rewind(start)
    row_of = setup.meter()
    last = setup.schedule.steps

    with stop_requests() as stop:

        def finish(
            step: int,
            learner: Learner,
            rollouts: Rollouts,
            groups: Groups,
            batch: Batch,
            updates: list[dict[str, float]],
        ) -> None:
            row = row_of(step, learner, rollouts, groups, batch, updates)
            metrics.append(folder.metrics, row)
            display.show(row)
            if step % spec.run.checkpoint_every == 0 or step == last or stop.is_set():
                whole = {**learner.state_dict(), "first": first}
                checkpoint.save_step(folder.checkpoints, step, whole, spec.run.keep)
            if stop.is_set() and step < last:
                raise Stopped(f"stopped on request after step {step} of {last}; run again with --resume to go on")

        display.begin(spec, start)
        try:
            run(objective, setup.learner, setup.task, setup.schedule, [finish], start=start)
        finally:
            display.end()
    summary = summarise(spec, folder, first, setup.evaluate())
    files.replace(folder.summary, files.encode(summary))
    return summary


def summarise(spec: Spec, folder: RunFolder, first: Row, last: Row) -> Row:
    """What `--json` prints: the promised keys, from the evaluation and the metrics on disk."""
    rows = folder.read_metrics()
    return {
        "tier": spec.tier,
        "env": spec.name,
        "objective": spec.objective["name"],
        "tau": spec.objective.get("tau"),
        "steps": spec.schedule.steps,
        "seed": spec.run.seed,
        "pass_rate_first": first["pass_rate"],
        "pass_rate_last": last["pass_rate"],
        "reward_first": first["reward"],
        "reward_last": last["reward"],
        "tokens": sum(row["tokens"] for row in rows),
        "seconds": sum(row["seconds_rollout"] + row["seconds_update"] for row in rows),
        "out": str(folder.path),
    }


@contextmanager
def stop_at_once(sentence: str) -> Iterator[None]:
    """SIGTERM and SIGINT end the block where it stands; phase 0 is computed again on resume."""

    def leave(number: int, frame: Any) -> None:
        raise Stopped(sentence)

    with handling(leave):
        yield


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """SIGTERM and the first SIGINT ask the run to stop after this step; a second one interrupts at once."""
    stop = threading.Event()

    def ask(number: int, frame: Any) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    with handling(ask):
        yield stop


@contextmanager
def handling(handler: Callable[[int, Any], None]) -> Iterator[None]:
    """Answer SIGTERM and SIGINT with `handler` for a while; only the main thread of a process can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
