"""One run in one folder: restore, train, measure, checkpoint, summarise. The same for all backends."""

import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from pmdkit.errors import Stopped
from pmdkit.learner import Learner, Rollouts, Task
from pmdkit.loop import Observer, Schedule, Stream, inline, run
from pmdkit.objectives import Groups, Objective
from pmdkit.objectives.vocabulary import Batch
from pmdkit.observe import checkpoint, files, metrics
from pmdkit.observe.folder import RunFolder
from pmdkit.observe.room import shortage
from pmdkit.observe.trackers import make_trackers
from pmdkit.recording.recorder import Recorder, Remarks
from pmdkit.recording.witness import Heard, Witness
from pmdkit.spec import Spec
from pmdkit.team import ALONE, Team

Row = dict[str, Any]
GRACE = 15.0  # seconds that a step may still take after a request to stop; schedulers commonly kill after 30


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

    def work(self, what: str, done: float, total: float, detail: str = "") -> None:
        """Progress of a phase that takes long, called often."""

    def end(self) -> None:
        """After the last step, or when the run ends early."""


@dataclass(frozen=True)
class Setup:
    """What a backend builds from a spec.

    Attributes:
        learner, task, schedule: for the loop.
        meter: called once the learner is restored; gives the function that turns a finished step into a row of metrics.
        evaluate: `pass_rate` and `reward` of the current policy on a fixed set of problems.
        policy: the policy in the tier's own form (bandit: [S, A] probabilities; toy and llm: the model).
        prepare: phase 0, before the first evaluation: a supervised warm start. Checkpointed as step 0.
        observers: see each finished step after its metrics are written and before it is checkpointed.
        beside: files that stand beside the weights in a checkpoint.
        workplace: entered with the run's folder and display for the whole run; what it opens is closed with it.
        team: the processes that run this together. Each executes the same; the main one alone writes to the folder.
        stream: where the loop gets its rollouts from.
        remarks: what a recorded step says beside its numbers, in the tier's own words.
    """

    learner: Learner
    task: Task
    schedule: Schedule
    meter: Callable[[], Callable[..., Row]]
    evaluate: Callable[[], dict[str, float | None]]
    policy: Callable[[], Any]
    prepare: Callable[[Callable[[str], None]], None] | None = None
    observers: Sequence[Observer] = ()
    beside: Callable[[], Mapping[str, bytes]] | None = None
    workplace: Callable[[RunFolder, Display], AbstractContextManager[None]] = lambda folder, display: nullcontext()
    team: Team = ALONE
    stream: Stream = inline
    remarks: Callable[[Rollouts], Remarks] | None = None


def execute(spec: Spec, objective: Objective, setup: Setup, folder: RunFolder, display: Display) -> Row:
    """Run to the last step from wherever the folder stands; returns the summary.

    Whatever the last checkpoint acknowledged is not computed again; whatever came after it is dropped and computed
    again from the seed, to the same bits.
    """
    torch.set_num_threads(spec.run.threads)
    team = setup.team
    start, state, warnings = checkpoint.load_newest(folder.checkpoints) if team.main else (0, {}, [])
    for warning in warnings:
        display.warn(warning)
    with stop_at_once(), team.together(), setup.workplace(folder, display):
        start, state = team.hand_out(start, state)
        if state:
            first = state.pop("first")
            setup.learner.load_state_dict(state)
        else:
            first = begin(spec, setup, folder, display)
        if team.main:
            checkpoint.prune(folder.checkpoints, start, spec.run.keep)  # a kill may have come between save and prune
            shutil.rmtree(folder.phase_0, ignore_errors=True)  # what phase 0 kept for its own resume: it is over
            folder.rewind(start)
        train(spec, objective, setup, folder, display, start, first)
        last = setup.evaluate()
        summary: Row = team.tell(summarise(spec, folder, first, last) if team.main else None)
    if team.main:
        files.replace(folder.summary, files.encode(summary))
    return summary


def begin(spec: Spec, setup: Setup, folder: RunFolder, display: Display) -> Row:
    """Phase 0 where there is one, and the evaluation before the first update."""
    if setup.prepare is not None:
        setup.prepare(display.note)
    first = setup.evaluate()
    if setup.prepare is not None:
        save(spec, setup, folder, 0, first)
    return first


def train(
    spec: Spec, objective: Objective, setup: Setup, folder: RunFolder, display: Display, start: int, first: Row
) -> None:
    """The loop from after step `start`, each step measured, observed and checkpointed."""
    row_of = setup.meter()
    last = setup.schedule.steps
    team = setup.team
    recorder = make_recorder(spec, objective, setup, folder) if spec.run.record else None
    trackers = make_trackers(spec.run.report_to if team.main else [], folder.path, spec.record(), display.warn)

    with stop_requests() as stop:

        def finish(
            step: int,
            learner: Learner,
            rollouts: Rollouts,
            groups: Groups,
            batch: Batch,
            updates: list[dict[str, float]],
        ) -> None:
            heard = Heard(learner)
            row = row_of(step, heard, rollouts, groups, batch, updates)
            metrics.finite_or_stop(row)
            if team.main:
                metrics.append(folder.metrics, row)
            if recorder is not None:
                recorder.record(step, rollouts, groups, updates, heard.after)
            trackers.log(row)
            display.show(row)
            for observe in setup.observers:
                observe(step, learner, rollouts, groups, batch, updates)
            stopping = team.any(stop.is_set())  # asked at different moments, all leave after the same step
            if step % spec.run.checkpoint_every == 0 or step == last or stopping:
                save(spec, setup, folder, step, first)
                if team.main and step - start <= spec.run.checkpoint_every:  # the first one here tells their size
                    short = shortage(folder.checkpoints, spec.run.keep, -(-(last - step) // spec.run.checkpoint_every))
                    if short is not None:
                        display.warn(short)
            if stopping and step < last:
                raise Stopped(f"stopped on request after step {step} of {last}; run again with --resume to go on")

        display.begin(spec, start)
        try:
            asked = objective if recorder is None else recorder.witness
            run(asked, setup.learner, setup.task, setup.schedule, [finish], setup.stream, start)
        finally:
            display.end()
            trackers.close()


def make_recorder(spec: Spec, objective: Objective, setup: Setup, folder: RunFolder) -> Recorder:
    """The recorder of run.record."""
    about = {"tier": spec.tier, "env": spec.name, "objective": spec.objective}
    every, witness = spec.run.record, Witness(objective)
    return Recorder(folder, every, about, setup.schedule, witness, setup.remarks, setup.team)


def save(spec: Spec, setup: Setup, folder: RunFolder, step: int, first: Row) -> None:
    """Checkpoint a finished step."""
    state = setup.learner.state_dict()  # of every process: shares of it may have to be put together
    if setup.team.main:
        beside = setup.beside() if setup.beside is not None else None
        checkpoint.save_step(folder.checkpoints, step, {**state, "first": first}, spec.run.keep, beside)


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
def stop_at_once(
    sentence: str = "stopped between two steps, nothing was lost; run again with --resume",
) -> Iterator[None]:
    """SIGTERM and SIGINT end the block where it stands; what it was at is computed again on resume."""

    def leave(number: int, frame: Any) -> None:
        raise Stopped(sentence)

    with handling(leave):
        yield


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """SIGTERM and the first SIGINT ask the run to stop after this step; a second SIGINT interrupts at once.

    A step that takes longer than the grace is abandoned where it stands: the last checkpoint is what goes on.
    """
    stop = threading.Event()

    def ask(number: int, frame: Any) -> None:
        if stop.is_set():
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return  # who stops a whole group tells each process, and a rank hears it from its launcher as well
        stop.set()
        if hasattr(signal, "setitimer"):  # not on Windows, where a long step is waited for
            signal.setitimer(signal.ITIMER_REAL, GRACE)

    def abandon(number: int, frame: Any) -> None:
        raise Stopped("stopped on request, the unfinished step is abandoned; run again with --resume to go on")

    with handling(ask), handling(abandon, [signal.SIGALRM] if hasattr(signal, "SIGALRM") else []):
        try:
            yield stop
        finally:
            if hasattr(signal, "setitimer"):
                signal.setitimer(signal.ITIMER_REAL, 0)


@contextmanager
def handling(
    handler: Callable[[int, Any], None], numbers: Sequence[signal.Signals] = (signal.SIGINT, signal.SIGTERM)
) -> Iterator[None]:
    """Answer signals with `handler` for a while; only the main thread of a process can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]  # nohup, or a script's "&"
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
