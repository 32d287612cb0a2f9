"""Fit a policy in one folder: restore, train, measure, checkpoint, summarise. The same for every backend.

Top to bottom: what a run consists of, `fit`, one step, and how a run stops early. A backend provides what `loop.run`
needs and how it is measured; everything else in a run is a callback.
"""

import math
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from pmdkit.child_processes import handling
from pmdkit.errors import Diverged, ResumeRefused, Stopped, UsageError, printable
from pmdkit.extras import load_entry_point
from pmdkit.loop import Learner, Rollouts, Schedule, Stream, Task, inline, run
from pmdkit.objectives import Batch, Groups, Objective
from pmdkit.observe import checkpoint, files
from pmdkit.observe.input_digests import Inputs, check_inputs
from pmdkit.observe.metrics import Measured, own_columns
from pmdkit.observe.run_folder import RunFolder, locked
from pmdkit.plugins import class_from_path, code_inputs
from pmdkit.process_group import SINGLE, ProcessGroup
from pmdkit.specs import Spec

Row = dict[str, Any]
OVERDUE = 300.0  # seconds without a checkpoint after which one is saved early, unless saving takes a twentieth of them
GRACE = 15.0  # seconds that a step may still take after a request to stop; schedulers commonly kill after 30


class Display:
    """Progress output of a run. This base class prints only warnings; the classes in `pmdkit.console` show progress."""

    def begin(self, spec: Spec, start: int) -> None:
        """Called before the first step of this process."""

    def show(self, row: Row) -> None:
        """Called after each step."""

    def warn(self, sentence: str) -> None:
        """Show a warning to the user."""
        print(f"pmdkit: warning: {printable(sentence)}", file=sys.stderr)

    def note(self, sentence: str) -> None:
        """Show a note, such as what happens before the first step."""

    def work(self, what: str, done: float, total: float, detail: str = "") -> None:
        """Show that `done` of `total` of a long phase is finished, in units of the phase; called often."""

    def end(self) -> None:
        """Called after the last step, or when the run ends early."""


@dataclass(frozen=True)
class StepResult:
    """A finished step: what an observer of the loop sees, its row, and scores after it, see `Measured`."""

    step: int
    rollouts: Rollouts
    groups: Groups
    batch: Batch
    updates: list[dict[str, float]]
    row: Row
    logp_after: Tensor | None = None


class TrainerCallback:
    """Hooks into a run. The names are those of transformers' Trainer; each does nothing by default.

    Every process of a run calls every method in the same order, except `on_save`; only the main one writes to the
    folder.
    """

    def on_init_end(self, run: "RunContext") -> None:
        """Called when the folder is open, before anything is restored, evaluated or trained."""

    def on_train_begin(self, run: "RunContext") -> None:
        """Called before the first step of this process, with a learner restored or warm-started and evaluated."""

    def on_step_end(self, run: "RunContext", result: StepResult) -> None:
        """Called when a step's metrics are written, before its checkpoint."""

    def on_save(self, run: "RunContext", extra_files: dict[str, bytes]) -> None:
        """Called before the main process writes a checkpoint, which stores files put into `extra_files` by name."""

    def on_train_end(self, run: "RunContext", error: BaseException | None) -> None:
        """Called when the run ends, with an error or after its last evaluation, if `on_init_end` was called."""


@dataclass(frozen=True)
class Backend:
    """The parts that a tier builds from a spec.

    Attributes:
        learner, task, schedule: for the loop.
        metrics: an observer of the loop that measures the step.
        evaluate: `pass_rate` and `reward` of the current policy on a fixed set of problems.
        policy: the policy in the tier's own form (bandit: [S, A] probabilities; toy and llm: the model).
        warm_start: phase 0, supervised, before the first evaluation; reports to its argument. Checkpointed as step 0.
        stream: where the loop gets its rollouts from.
        process_group: the processes that run this together.
        callbacks: further hooks.
        inputs: digests of the run's inputs besides its options, or the files to digest; called once.
        decisions: of options that the machine decides, by dotted key: the value for the record, and why.
    """

    learner: Learner
    task: Task
    schedule: Schedule
    metrics: Callable[..., Measured]
    evaluate: Callable[[], dict[str, float | None]]
    policy: Callable[[], Any]
    warm_start: Callable[[Callable[[str], None]], None] | None = None
    stream: Stream = inline
    process_group: ProcessGroup = SINGLE
    callbacks: Sequence[TrainerCallback] = ()
    inputs: Callable[[], Inputs] = dict
    decisions: Mapping[str, tuple[Any, str]] = field(default_factory=dict)


@dataclass(frozen=True)
class RunContext:
    """The run that a callback is called in; `reporters` are its trackers, if any, from `on_step_end` on."""

    spec: Spec
    objective: Objective
    backend: Backend
    folder: RunFolder
    display: Display
    reporters: Any = None


def fit(
    spec: Spec,
    objective: Objective,
    backend: Backend,
    folder: RunFolder,
    display: Display,
    accept_changes: bool = False,
) -> Row:
    """Run to the last step, from the newest checkpoint in the folder if there is one; returns the summary.

    The main process locks the folder and writes to it; the others are silent. Nothing up to the last checkpoint is
    computed again; later steps are dropped and computed again from the seed, bit for bit. Data, code or
    weights other than those the run began with are refused unless `accept_changes`.
    """
    group, main = backend.process_group, backend.process_group.is_main_process
    own = [class_from_path(name)() for name in spec.run.callbacks]
    if strange := [type(one).__name__ for one in own if not isinstance(one, TrainerCallback)]:
        raise UsageError(f"run.callbacks names {strange[0]}; expected a subclass of pmdkit.fit.TrainerCallback")
    backend = replace(backend, callbacks=[*backend.callbacks, *own])
    context = RunContext(spec, objective, backend, folder, display if main else Display())
    began = time.monotonic()
    with locked(folder) if main else nullcontext():
        if main:
            record = spec.record()
            found = code_inputs(record) | dict(backend.inputs())
            if found or folder.inputs.exists():
                check_inputs(folder, found, accept_changes, display.warn)
            folder.begin(record)
        torch.set_num_threads(spec.run.threads)
        with group.error_scope():
            checkpoints = group.checkpoints(folder.checkpoints)
            start, state, warnings = checkpoints.load_newest()
        for warning in warnings:
            context.display.warn(warning)

        with stop_at_once(), group.error_scope(), ExitStack() as stack:
            for callback in backend.callbacks:  # every callback that began also ends, in reverse order
                stack.push(lambda kind, error, trace, end=callback.on_train_end: end(context, error))
                callback.on_init_end(context)
            if state:
                first = state.pop("first", None)  # the evaluation before the first step, which every checkpoint holds
                if first is None:
                    raise ResumeRefused(f"checkpoint step-{start} of {folder.path} is not of a run; give another --out")
                backend.learner.load_state_dict(state)
            else:
                if backend.warm_start is not None:  # phase 0
                    backend.warm_start(context.display.note)
                first = backend.evaluate()
                if backend.warm_start is not None:  # so that a resume skips phase 0
                    save(context, checkpoints, 0, first)
            if main:  # remove what an interrupted run has left behind after its last checkpoint
                checkpoint.prune(folder.checkpoints, start, spec.run.keep)  # a kill may come between save and prune
                shutil.rmtree(folder.phase_0, ignore_errors=True)  # only a resume of phase 0 needs it
                folder.rewind(start)
                if 0 < start < spec.schedule.steps:
                    files.replace(folder.restarts, files.encode({"steps": [*folder.read_restarts(), start]}))
            rows = folder.read_metrics() if main and start else []  # rows up to the checkpoint's step
            rows += fit_steps(context, checkpoints, start, first, began)
            last = backend.evaluate()
            summary: Row = group.broadcast_object(summarise(spec, folder, rows, first, last) if main else None)

        if main:
            files.replace(folder.summary, files.encode(summary))
    return summary


def fit_steps(
    context: RunContext, checkpoints: checkpoint.Checkpoints, start: int, first: Row, began: float
) -> list[Row]:
    """Run the loop from step `start` + 1; each step is measured, passed to the callbacks and checkpointed.

    Returns the rows of metrics of these steps. run.max_time counts from `began`, in monotonic seconds.
    """
    spec, backend, display = context.spec, context.backend, context.display
    group, last = backend.process_group, backend.schedule.steps
    for callback in backend.callbacks:
        callback.on_train_begin(context)
    reporters, rows = None, []
    if spec.run.report_to and group.is_main_process:
        kind = trackers(spec)
        reporters = kind(spec.run.report_to, context.folder.path, spec.record(), display.warn)
        context = replace(context, reporters=reporters)

    end, longest = began, 0.0  # times of the last step; the first step includes the set-up before it
    differ = start > 0  # whether any group had two different rewards; of earlier steps this is not known
    saved, saving = time.monotonic(), 0.0  # when the last checkpoint was saved, and the seconds that it took

    with stop_requests() as stop:

        def after_step(
            step: int,
            learner: Learner,
            rollouts: Rollouts,
            groups: Groups,
            batch: Batch,
            updates: list[dict[str, float]],
        ) -> None:
            nonlocal end, longest, saved, saving, differ
            measured = backend.metrics(step, learner, rollouts, groups, batch, updates)
            row = {**measured.row, **own_columns(context.objective, batch)}
            for key in ("loss", "grad_norm", "log_ratio_min", "log_ratio_max", "reward_mean"):
                if row.get(key) is not None and not math.isfinite(row[key]):
                    remedy = "the last checkpoint is intact: lower lr or raise tau, and start again with another --out"
                    raise Diverged(f"{key} is {row[key]} at step {step}; {remedy}")
            if group.is_main_process:
                context.folder.append_metrics(row)
            differ = differ or (row["zero_variance_groups"] or 0) < len(rollouts.prompts)
            if reporters is not None:
                reporters.log(row)
            display.show(row)
            rows.append(row)
            result = StepResult(step, rollouts, groups, batch, updates, row, measured.logp_after)
            for callback in backend.callbacks:
                callback.on_step_end(context, result)
            longest, end = max(longest, time.monotonic() - end), time.monotonic()
            # this checkpoint, another step and its checkpoint may take too long
            late = spec.run.max_time is not None and end - began + 2 * longest > spec.run.max_time
            # a request reaches the processes at different times, but all of them must leave after the same step
            stopping = group.any_rank(stop.is_set() or late)
            overdue = group.any_rank(end - saved > max(OVERDUE, 20 * saving))
            if step % spec.run.checkpoint_every == 0 or step == last or stopping or overdue:
                save(context, checkpoints, step, first)
                saved, saving = time.monotonic(), time.monotonic() - end
            if step == last or stopping:
                checkpoints.wait()
            if stopping and step < last:
                why = "because run.max_time is near" if late and not stop.is_set() else "on request"
                raise Stopped(f"stopped {why} after step {step} of {last}; run again with --resume to go on")

        display.begin(spec, start)
        try:
            run(context.objective, backend.learner, backend.task, backend.schedule, [after_step], backend.stream, start)
            if not differ:
                display.warn("no group had two different rewards, so nothing was learned: read some responses")
        except Exception:
            with suppress(Exception):  # a pending write still counts; report the error that ended the run
                checkpoints.wait()
            raise
        finally:
            display.end()
            if reporters is not None:
                reporters.close()
    return rows


def trackers(spec: Spec) -> Any:
    """The class of the trackers of run.report_to, which pmdkit-adapters has."""
    return load_entry_point("tracker", spec.run.report_to[0], elsewhere=spec.run.report_to)


def save(context: RunContext, checkpoints: checkpoint.Checkpoints, step: int, first: Row) -> None:
    """Checkpoint a finished step."""
    backend = context.backend
    extra_files: dict[str, bytes] = {}
    if backend.process_group.is_main_process:
        for callback in backend.callbacks:
            callback.on_save(context, extra_files)
    state = {**backend.learner.state_dict(), "first": first}
    checkpoints.save(step, state, context.spec.run.keep, extra_files or None)


def summarise(spec: Spec, folder: RunFolder, rows: list[Row], first: Row, last: Row) -> Row:
    """The summary that `--json` prints: the promised keys, from the metrics of all steps and the evaluation."""
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


# How a run stops early.


@contextmanager
def stop_at_once(
    sentence: str = "stopped between two steps, nothing was lost; run again with --resume",
) -> Iterator[None]:
    """SIGTERM and SIGINT end the block immediately; unfinished work is computed again on resume."""

    def leave(number: int, frame: Any) -> None:
        raise Stopped(sentence)

    with handling(leave):
        yield


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """SIGTERM and the first SIGINT ask the run to stop after this step; a second SIGINT interrupts at once.

    A step that exceeds the grace period is abandoned: the run resumes from the last checkpoint.
    """
    stop = threading.Event()

    def ask(number: int, frame: Any) -> None:
        if stop.is_set():
            if number == signal.SIGINT:
                raise KeyboardInterrupt
            return  # ignored, because a rank may be signalled with its group and again by its launcher
        stop.set()
        if hasattr(signal, "setitimer"):  # missing on Windows, where a long step is awaited
            signal.setitimer(signal.ITIMER_REAL, GRACE)

    def abandon(number: int, frame: Any) -> None:
        raise Stopped("stopped on request, the unfinished step is abandoned; run again with --resume to go on")

    with handling(ask), handling(abandon, [signal.SIGALRM] if hasattr(signal, "SIGALRM") else []):
        try:
            yield stop
        finally:
            if hasattr(signal, "setitimer"):
                signal.setitimer(signal.ITIMER_REAL, 0)
