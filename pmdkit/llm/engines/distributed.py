"""One engine over all processes: prompts are split, responses gathered, and an engine that is lost is restarted.

`generate_share` and `push_weights` concern this process alone and may run in any thread; all processes together do
everything else. An engine of ours that writes alone, in the trainer's process, needs none of this: see `supervise`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pmdkit.distributed import SINGLE, ProcessGroup
from pmdkit.errors import ComponentDied
from pmdkit.llm.engines.base import (
    ANY_RESPONSES,
    NO_WEIGHTS,
    Engine,
    EngineLost,
    Phase,
    Progress,
    ResponseCheck,
    Responses,
    Sampling,
    Tokens,
)
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.llm.engines.watchdog import WatchedCall
from pmdkit.llm.mismatch import ExpectedLogp, WeightSyncCheck
from pmdkit.llm.weights import LazyWeights

TRIES = 3


def supervise(engine: Engine, process_group: ProcessGroup = SINGLE) -> "TransformersEngine | DistributedEngine":
    """An engine that a run can rely on: checked, restarted when it is lost, and one for all processes.

    The engine of transformers in a single process is returned as it is: it cannot be lost without the run.
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

    A row depends on its prompt and its seed, so who writes it does not matter, up to rounding. An engine that is lost
    is restarted, gets the weights again, and writes again what it was asked for; the third loss in a row ends the run.

    Args:
        engine: of this process; None where another process has the only one.
        process_group: every process calls every method, in the same order.
        end: token that fills up rows.
        central: only the main process has an engine.
        span: consecutive processes that are one engine together, its tensor-parallel ranks.
        joined: engines of several processes begin and end together, so that one alone cannot be restarted.
        silence: seconds without a new token after which an engine counts as hung; None where it cannot hang alone,
            because it runs in the calling thread.
        sync_check: compares engine and trainer after every publish.
        response_check: what every answer must look like.

    Attributes:
        found: what the last sync check measured.
        restarts: in all.
        warn: called with a sentence when an engine is restarted.
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
        response_check: ResponseCheck = ANY_RESPONSES,
    ) -> None:
        self.engine = engine
        self.process_group = process_group
        self.end = end
        self.central = central
        self.span = span
        self.joined = joined
        self.silence = silence
        self.running: WatchedCall[Responses | None] | None = None
        self.sync_check = sync_check
        self.response_check = response_check
        self.version = NO_WEIGHTS
        self.failures = 0  # in a row
        self.restarts = 0
        self.warn: Callable[[str], None] = lambda sentence: None
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
        """This process's share, written in a thread where an engine may hang."""
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
        """Which of so many prompts this process answers."""
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
        width = max(part.shape[1] for part in tokens)
        return Responses(
            tokens=torch.cat([pad_rows(part, width, self.end) for part in tokens]),
            logp=torch.cat([pad_rows(part, width, 0.0) for part in logp]),
            mask=torch.cat([pad_rows(part, width, False) for part in mask]),
            ended=torch.cat(ended),
            version=same_version(torch.cat(versions).tolist()),
        )

    def gather_tensor(self, tensor: Tensor) -> list[Tensor]:
        """What each engine has, one process of each."""
        return self.process_group.gather(tensor)[:: self.span]

    def score(self, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> list[Tensor]:
        """[T_n] log-probabilities of the tokens of N responses; each process scores all of what it is given."""
        if self.engine is None:
            raise ComponentDied("only the main process has an engine to score with")
        return self.engine.score(prompts, responses)

    def publish(self, weights: Mapping[str, Tensor], version: int, expected: ExpectedLogp | None = None) -> None:
        """Take over these weights, then run the sync check, where there is one and the trainer's numbers are given."""
        self.published = weights, version, expected
        _, lost = self.catch_loss(lambda: self.push_weights(weights, version, expected))
        while self.process_group.any_rank(lost is not None):
            lost = self.republish(lost)

    def push_weights(self, weights: Mapping[str, Tensor], version: int, expected: ExpectedLogp | None) -> None:
        """Publish to the engine of this process. Every weight is looked at, whatever becomes of the engine."""
        tracked = TrackedWeights(weights)
        self.version = NO_WEIGHTS
        try:
            if self.engine is not None:
                self.engine.publish(tracked, version)
        finally:
            tracked.visit_rest()  # looking at a weight may put it together from the shares of all processes
        self.version = version
        if self.sync_check is not None and self.engine is not None and expected is not None:
            self.found = self.sync_check.check(self.engine, expected, self.response_check)

    def recover(self, lost: EngineLost | None) -> None:
        """After a loss in any process: until every engine has the weights again."""
        again: EngineLost | None = self.republish(lost)
        while self.process_group.any_rank(again is not None):
            again = self.republish(again)

    def republish(self, lost: EngineLost | None) -> EngineLost | None:
        """Restart the engine of this process if it is the lost one, and publish; returns what went wrong again."""
        assert self.published is not None
        self.count_loss(lost)
        weights, version, expected = self.published
        if lost is None:
            TrackedWeights(weights).visit_rest()
            return None
        return self.catch_loss(lambda: self.restart_with(weights, version, expected))[1]

    def restart_with(self, weights: Mapping[str, Tensor], version: int, expected: ExpectedLogp | None) -> None:
        """Restart the engine of this process and give it weights."""
        tracked = TrackedWeights(weights)
        try:
            if self.engine is not None:
                self.engine.restart()
            self.push_weights(tracked, version, expected)
        finally:
            tracked.visit_rest()

    def count_loss(self, lost: EngineLost | None) -> None:
        """One more loss in a row; too many end the run."""
        self.failures += 1
        self.restarts += lost is not None
        reason = str(lost) if lost is not None else "the engine of another process was lost"
        if self.failures >= TRIES or self.joined:
            raise ComponentDied(
                f"{reason}; lost {self.failures} times in a row: the last checkpoint is intact, repair the engine "
                "and go on with --resume"
            ) from lost
        if lost is not None:
            self.warn(f"{reason}; it is restarted and writes again what it was asked for")

    def catch_loss(self, call: Callable[[], Responses | None]) -> tuple[Responses | None, EngineLost | None]:
        """What a call returns, or how the engine was lost in it."""
        try:
            return call(), None
        except EngineLost as lost:
            self.version = NO_WEIGHTS
            return None, lost

    def enter(self, phase: Phase) -> None:
        """Prepare for the phase that comes next."""
        if self.engine is not None:
            self.engine.enter(phase)

    def restart(self) -> None:
        """Begin anew."""
        self.version = NO_WEIGHTS
        if self.engine is not None:
            self.engine.restart()

    def close(self) -> None:
        """Let everything go. A call that does not end ends with the process, and so does its engine."""
        if self.engine is not None and (self.running is None or self.running.abandon()):
            self.engine.close()


class TrackedWeights(LazyWeights):
    """Weights, and which of them have been looked at. Every process looks at all of them, once and in their order."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        super().__init__(weights)
        self.left = dict.fromkeys(weights)

    def __getitem__(self, name: str) -> Tensor:
        self.left.pop(name, None)
        return self.source[name]

    def visit_rest(self) -> None:
        """Look at those that nobody has looked at."""
        for name in list(self.left):
            self[name]


def same_version(versions: Sequence[int]) -> int:
    """The one version of all parts of a rollout."""
    if len(set(versions)) > 1:
        raise ComponentDied(f"engines answered with weights of versions {sorted(set(versions))}; expected one version")
    return versions[0] if versions else NO_WEIGHTS


def pad_rows(rows: Tensor, width: int, value: float) -> Tensor:
    """[n, T] filled up to a width."""
    return F.pad(rows, (0, width - rows.shape[1]), value=value)
