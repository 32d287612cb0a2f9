"""One engine over all processes: it splits prompts, gathers responses and restarts engines that are lost.

An engine that hangs ends the run. `generate_share` and `push_weights` concern this process alone and may run in any
thread; everything else is called by all processes together. The transformers engine in a single process needs none of
this: see `supervise`.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pmdkit.distributed import SINGLE, ProcessGroup
from pmdkit.errors import ComponentDied
from pmdkit.llm.engines import base
from pmdkit.llm.engines.base import NO_WEIGHTS, Engine, EngineLost, Phase, Progress, Responses, Sampling, Tokens
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.weight_sync_check import ExpectedLogp, WeightSyncCheck
from pmdkit.llm.weights import LazyWeights

TRIES = 3
POLL = 0.5  # seconds between checks of a silent call
PATIENCE = 1.5  # factor on `silence`: an engine's own deadline comes first
CLOSING = 5.0  # seconds that a thread may take to notice that nobody waits for it


def supervise(engine: Engine, process_group: ProcessGroup = SINGLE) -> "TransformersEngine | DistributedEngine":
    """An engine that a run can rely on: checked, restarted when it is lost, and one for all processes.

    The transformers engine in a single process is returned as it is: it cannot be lost without the run.
    """
    if isinstance(engine, DistributedEngine) or (isinstance(engine, TransformersEngine) and process_group.size == 1):
        return engine
    return DistributedEngine(engine, process_group)


@dataclass(frozen=True)
class GenerateRequest:
    """A call of `generate`, the same in every process."""

    prompts: Sequence[Tokens]
    group: int
    seeds: NDArray
    sampling: Sampling
    progress: Progress | None = None


class DistributedEngine:
    """An Engine over the engines of a process group's processes.

    A row depends on its prompt and its seed only, so it does not matter, up to rounding, which engine generates it. A
    lost engine is restarted, gets the weights again, and repeats the request; the third loss in a row ends the run.

    Args:
        engine: of this process; None where another process has the only one.
        process_group: every process calls every method, in the same order.
        end: padding token.
        central: only the main process has an engine.
        span: number of consecutive processes that form one engine, its tensor-parallel ranks.
        joined: engines of several processes start and stop together, so that one alone cannot be restarted.
        silence: seconds without a new token after which an engine counts as hung; None where it cannot hang alone,
            because it runs in the calling thread.
        sync_check: compares engine and trainer after every publish.
        response_check: what every answer must look like.

    Attributes:
        found: what the last sync check measured.
        restarts: total number.
        warn: called with a sentence when an engine is restarted.
        on_finished: called with the finished responses of this process's share, see `Engine`.
    """

    def __init__(
        self,
        engine: Engine | None,
        process_group: ProcessGroup = SINGLE,
        end: int = 0,
        *,
        central: bool = False,
        span: int = 1,
        joined: bool = False,
        silence: float | None = None,
        sync_check: WeightSyncCheck | None = None,
        response_check: base.ResponseCheck = base.ANY_RESPONSES,
    ) -> None:
        self.engine = engine
        self.process_group = process_group
        self.end = end
        self.central = central
        self.span = span
        self.joined = joined
        self.silence = silence
        self.running: WatchedCall | None = None
        self.sync_check = sync_check
        self.response_check = response_check
        self.version = NO_WEIGHTS
        self.failures = 0  # in a row
        self.restarts = 0
        self.warn: Callable[[str], None] = lambda sentence: None
        self.on_finished: base.Finished | None = None
        self.found: dict[str, float] = {}
        self.published: tuple[Mapping[str, Tensor], int, ExpectedLogp | None] | None = None

    def generate(
        self,
        prompts: Sequence[Tokens],
        group: int,
        seeds: NDArray,
        sampling: Sampling,
        progress: Progress | None = None,
    ) -> Responses:
        """`group` responses to each of P prompts, prompt-major, in every process."""
        request = GenerateRequest(prompts, group, seeds, sampling, progress)
        part, lost = self.catch_loss(lambda: self.generate_watched(request))
        while self.process_group.any_rank(lost is not None):
            again = lost is not None
            self.recover(lost)
            lost = None
            if again:
                part, lost = self.catch_loss(lambda: self.generate_watched(request))
        return self.gather(part)

    def generate_watched(self, request: GenerateRequest) -> Responses | None:
        """This process's share, generated in a watched thread if the engine may hang."""
        if self.silence is None:
            return self.generate_share(request)

        def write(thread: WatchedCall) -> Responses | None:
            def progress(tokens: int, ended: int) -> None:
                thread.heartbeat()
                if request.progress is not None:
                    request.progress(tokens, ended)

            return self.generate_share(replace(request, progress=progress))

        self.running = WatchedCall(write, self.silence)
        return self.running.result()

    def prompts_here(self, count: int) -> range:
        """Which of `count` prompts this process answers."""
        if self.central:
            return range(count if self.process_group.is_main_process else 0)
        if self.span == 1:
            return self.process_group.split_by_cost([1.0] * count)[self.process_group.rank]
        each, engines = self.process_group.rank // self.span, self.process_group.size // self.span
        return range(count * each // engines, count * (each + 1) // engines)

    def generate_share(self, request: GenerateRequest) -> Responses | None:
        """This process's share; None where it has none."""
        mine = self.prompts_here(len(request.prompts))
        if not mine or self.engine is None:
            self.failures = 0
            return None
        self.engine.enter("rollout")
        self.report_finished(mine.start)
        times, progress = len(request.prompts) / len(mine), request.progress
        drawn = self.engine.generate(
            request.prompts[mine.start : mine.stop],
            request.group,
            request.seeds[mine.start * request.group : mine.stop * request.group],
            request.sampling,
            None if progress is None else lambda tokens, ended: progress(int(tokens * times), int(ended * times)),
        )
        self.response_check.check(drawn, len(mine), request.group, request.sampling)
        self.failures = 0  # here and not in `gather`, which may run while another thread counts losses
        return drawn

    def report_finished(self, start: int) -> None:
        """Let the engine report finished responses, if it can; `start` is the place of its first prompt.

        All processes of one engine see all of its responses; only the first of them reports.
        """
        if not hasattr(self.engine, "on_finished"):
            return
        report = self.on_finished if self.process_group.rank % self.span == 0 else None
        self.engine.on_finished = None if report is None else lambda place, tokens: report(start + place, tokens)  # type: ignore[union-attr]

    def gather(self, drawn: Responses | None) -> Responses:
        """All shares, in every process."""
        if self.process_group.size == 1:
            assert drawn is not None
            return drawn
        empty = torch.zeros(0, 1)
        tokens = self.gather_tensor(empty.long() if drawn is None else drawn.tokens.cpu())
        logp = self.gather_tensor(empty if drawn is None else drawn.logp.cpu())
        mask = self.gather_tensor(empty.bool() if drawn is None else drawn.mask.cpu())
        ended = self.gather_tensor(empty[:, 0].bool() if drawn is None else drawn.ended.cpu())
        versions = self.gather_tensor(torch.tensor([] if drawn is None else [drawn.version], dtype=torch.long))
        found = sorted(set(torch.cat(versions).tolist()))
        if len(found) > 1:
            raise ComponentDied(f"engines answered with weights of versions {found}; expected one version")
        return Responses(
            tokens=join_rows(tokens, self.end),
            logp=join_rows(logp, 0.0),
            mask=join_rows(mask, False),
            ended=torch.cat(ended),
            version=found[0] if found else NO_WEIGHTS,
        )

    def gather_tensor(self, tensor: Tensor) -> list[Tensor]:
        """The tensor of each engine, from one of its processes."""
        return self.process_group.gather(tensor)[:: self.span]

    def score(self, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> list[Tensor]:
        """[T_n] log-probabilities of the tokens of N responses; each process scores all of what it is given."""
        if self.engine is None:
            raise ComponentDied("only the main process has an engine to score with")
        return self.engine.score(prompts, responses)

    def publish(self, weights: Mapping[str, Tensor], version: int, expected: ExpectedLogp | None = None) -> None:
        """Load these weights, then run the sync check if there is one and the trainer's numbers are given."""
        self.published = weights, version, expected
        _, lost = self.catch_loss(lambda: self.push_weights(weights, version, expected))
        while self.process_group.any_rank(lost is not None):
            lost = self.republish(lost)

    def push_weights(
        self, weights: Mapping[str, Tensor], version: int, expected: ExpectedLogp | None, restart: bool = False
    ) -> None:
        """Publish to the engine of this process, restarted first if it was lost.

        Every weight is accessed, whatever happens to the engine.
        """
        tracked = TrackedWeights(weights)
        self.version = NO_WEIGHTS
        try:
            if self.engine is not None:
                if restart:
                    self.engine.restart()
                self.engine.publish(tracked, version)
        finally:
            tracked.visit_rest()  # an access may gather a weight from the shards of all processes
        self.version = version
        if self.sync_check is not None and self.engine is not None and expected is not None:
            self.found = self.sync_check.check(self.engine, expected, self.response_check)

    def recover(self, lost: EngineLost | None) -> None:
        """After a loss in any process, republish until every engine has the weights again."""
        again: EngineLost | None = self.republish(lost)
        while self.process_group.any_rank(again is not None):
            again = self.republish(again)

    def republish(self, lost: EngineLost | None) -> EngineLost | None:
        """Restart the engine of this process if it is the lost one, and publish; returns the next loss, if any."""
        assert self.published is not None
        self.count_loss(lost)
        weights, version, expected = self.published
        if lost is None:
            TrackedWeights(weights).visit_rest()
            return None
        return self.catch_loss(lambda: self.push_weights(weights, version, expected, restart=True))[1]

    def count_loss(self, lost: EngineLost | None) -> None:
        """Count one more loss in a row; too many end the run."""
        self.failures += 1
        self.restarts += lost is not None
        reason = str(lost) if lost is not None else "the engine of another process was lost"
        if self.failures >= TRIES or self.joined:
            raise ComponentDied(
                f"{reason}; lost {self.failures} times in a row: the last checkpoint is intact, repair the engine "
                "and go on with --resume"
            ) from lost
        if lost is not None:
            self.warn(f"{reason}; it is restarted and repeats the request")

    def catch_loss(self, call: Callable[[], Responses | None]) -> tuple[Responses | None, EngineLost | None]:
        """What a call returns, or the loss of the engine during it."""
        try:
            return call(), None
        except EngineLost as lost:
            self.version = NO_WEIGHTS
            return None, lost

    def enter(self, phase: Phase) -> None:
        """Prepare for the next phase."""
        if self.engine is not None:
            self.engine.enter(phase)

    def restart(self) -> None:
        """Restart the engine of this process; it has no weights then."""
        self.version = NO_WEIGHTS
        if self.engine is not None:
            self.engine.restart()

    def close(self) -> None:
        """Release everything. A call that does not return ends with the process, and so does its engine."""
        if self.engine is not None and (self.running is None or self.running.abandon()):
            self.engine.close()


class TrackedWeights(LazyWeights):
    """Weights that track which of them were accessed. Every process accesses all of them, once and in order."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__(weights)
        self.left = dict.fromkeys(weights)

    def __getitem__(self, name: str) -> Tensor:
        self.left.pop(name, None)
        return self.source[name]

    def visit_rest(self) -> None:
        """Access those that were not accessed yet."""
        for name in list(self.left):
            self[name]


class Abandoned(Exception):
    """Nobody waits for the call any more."""


class WatchedCall:
    """A call of an engine in a thread of its own, watched for signs of life.

    An engine that hangs inside this process cannot be stopped, only left behind: the run ends.

    Args:
        call: what the thread runs. It calls `heartbeat` at every sign of life.
        silence: seconds without a sign of life after which the engine counts as hung.
        after: a call that has to end before this one begins.
    """

    def __init__(
        self, call: Callable[["WatchedCall"], Responses | None], silence: float, after: "WatchedCall | None" = None
    ) -> None:
        self.call = call
        self.silence = silence
        self.after = after
        self.done = threading.Event()
        self.abandoned = False
        self.error: BaseException | None = None
        self.value: Responses | None
        self.device = torch.cuda.current_device() if torch.cuda.is_available() else None
        self.heartbeat()
        threading.Thread(target=self.run, name="rollout", daemon=True).start()

    def run(self) -> None:
        """The body of the thread."""
        try:
            if self.device is not None:
                torch.cuda.set_device(self.device)  # each thread has its own current device
            while self.after is not None and not self.after.done.wait(POLL):
                if self.abandoned:
                    raise Abandoned
            self.after = None
            self.heartbeat()
            self.value = self.call(self)
        except BaseException as problem:  # raised again by `result`
            self.error = problem
        finally:
            self.done.set()

    def heartbeat(self, more: float = 0.0) -> None:
        """Note a sign of life; `more` seconds of silence are allowed on top. Raises `Abandoned` if nobody waits."""
        if self.abandoned:
            raise Abandoned
        self.deadline = time.monotonic() + PATIENCE * self.silence + more

    def result(self) -> Responses | None:
        """What the call returned, or the exception that ended it.

        Raises:
            ComponentDied: the engine has been silent for too long.
        """
        self.heartbeat()  # it may have been queued until now
        while not self.done.wait(POLL):
            if time.monotonic() > self.deadline:
                raise ComponentDied(
                    f"the engine wrote nothing for {PATIENCE * self.silence:.0f} s and cannot be stopped from here; "
                    "the last checkpoint is intact: go on with --resume, or raise rollout.silence"
                )
        if self.error is not None:
            raise self.error
        return self.value

    def abandon(self) -> bool:
        """End the call at its next sign of life; returns whether it did in time. Otherwise it ends with the process."""
        self.abandoned = True
        return self.done.wait(CLOSING)


def join_rows(parts: Sequence[Tensor], value: float) -> Tensor:
    """[N, T] from parts [n, T_n], padded to the widest."""
    width = max(part.shape[1] for part in parts)
    return torch.cat([F.pad(part, (0, width - part.shape[1]), value=value) for part in parts])
