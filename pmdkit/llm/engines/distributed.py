"""One engine over all processes: each generates for its share of the prompts, and every process gets all responses.

Generation is data parallel, as in TRL and verl: a row depends on its prompt and its seed only, so it does not matter,
up to rounding, which process generates it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace

import torch
from numpy.typing import NDArray
from torch import Tensor

from pmdkit.errors import ComponentDied
from pmdkit.llm.engines import base
from pmdkit.llm.engines.base import NO_WEIGHTS, Engine, Phase, Progress, Responses, Sampling, Tokens
from pmdkit.llm.engines.weight_sync_check import ExpectedLogp, WeightSyncCheck
from pmdkit.process_group import SINGLE, ProcessGroup

UNEVEN = 1.25  # the busiest engine's work over the mean, above which groups are divided: prompts are then read again


@dataclass(frozen=True)
class GenerateRequest:
    """A call of `generate`, the same in every process."""

    prompts: Sequence[Tokens]
    group: int
    seeds: NDArray
    sampling: Sampling
    progress: Progress | None = None


@dataclass
class DistributedEngine:
    """An Engine over the engines of a process group's processes.

    All processes call `generate` and `gather` together, in the same order, and `publish` too where an access to a
    weight gathers it. `generate_share` concerns this process alone; it and `publish` may run in any thread.

    Attributes:
        engine: of this process; None where the main process has the only one.
        central: only the main process has an engine, which uses servers.
        span: number of consecutive processes that form one engine, its tensor-parallel ranks.
        in_flight: weights may change while responses are written, so each token has a version.
        sync_check: compares engine and trainer after every publish.
        version: of the weights that the engines have.
    """

    engine: Engine | None
    process_group: ProcessGroup = SINGLE
    end: int = 0
    _: KW_ONLY
    central: bool = False
    span: int = 1
    in_flight: bool = False
    sync_check: WeightSyncCheck | None = None
    response_check: base.ResponseCheck = base.ANY_RESPONSES
    version: int = field(default=NO_WEIGHTS, init=False)

    def generate(
        self,
        prompts: Sequence[Tokens],
        group: int,
        seeds: NDArray,
        sampling: Sampling,
        progress: Progress | None = None,
    ) -> Responses:
        """`group` responses to each of P prompts, prompt-major, in every process."""
        return self.gather(self.generate_share(GenerateRequest(prompts, group, seeds, sampling, progress)))

    def count(self) -> int:
        """Number of engines that generate side by side; all processes call this together."""
        here = getattr(self.engine, "replicas", 1) if self.central else self.process_group.size // self.span
        return int(self.process_group.broadcast_object(here))

    def prompts_here(self, count: int) -> range:
        """Which of `count` prompts this process answers."""
        if self.central:
            return range(count if self.process_group.is_main_process else 0)
        if self.span == 1:
            return self.process_group.split_by_cost([1.0] * count)[self.process_group.rank]
        each, engines = self.process_group.rank // self.span, self.process_group.size // self.span
        return range(count * each // engines, count * (each + 1) // engines)

    def generate_share(self, request: GenerateRequest) -> Responses | None:
        """Responses of this process's share; None in a process without a share."""
        prompts, group, engines = request.prompts, request.group, self.process_group.size // self.span
        if not self.central and -(-len(prompts) // engines) * engines > UNEVEN * len(prompts):
            prompts, group = [prompt for prompt in prompts for _ in range(group)], 1  # share out rows, not groups
        mine = self.prompts_here(len(prompts))
        if not mine or self.engine is None:
            return None
        self.engine.enter("rollout")
        times, progress = len(prompts) / len(mine), request.progress
        drawn = self.engine.generate(
            prompts[mine.start : mine.stop],
            group,
            request.seeds[mine.start * group : mine.stop * group],
            request.sampling,
            # one process shows the progress of all: it takes its own share as typical
            None if progress is None else lambda tokens, ended: progress(int(tokens * times), int(ended * times)),
        )
        self.response_check.check(drawn, len(mine), group, request.sampling)
        return drawn

    def gather(self, drawn: Responses | None) -> Responses:
        """The responses of all shares, in every process; ComponentDied if their versions differ, but not in flight."""
        if self.process_group.size == 1:
            assert drawn is not None
            return drawn
        none = torch.zeros(0, 1)
        share = drawn or Responses(none.int(), none, none.bool(), none[:, 0].bool(), NO_WEIGHTS)
        mask = share.mask.cpu()
        published = sorted(set(torch.cat(self.gather_tensor(torch.tensor([share.version]))).tolist()) - {NO_WEIGHTS})
        if len(published) > 1 and not self.in_flight:
            raise ComponentDied(f"engines answered with weights of versions {published}; expected one version")
        every = Responses.from_flat(
            tokens=torch.cat(self.gather_tensor(share.tokens.cpu()[mask].int())),
            logp=torch.cat(self.gather_tensor(share.logp.cpu()[mask])),
            lengths=torch.cat(self.gather_tensor(mask.sum(1))),
            ended=torch.cat(self.gather_tensor(share.ended.cpu())),
            end=self.end,
            version=published[0] if published else NO_WEIGHTS,
        )
        if not self.in_flight:
            return every
        mine = torch.full(mask.shape, share.version).int() if share.versions is None else share.versions.cpu()
        versions = torch.cat(self.gather_tensor(mine[mask]))
        return replace(every, versions=every.mask.int().masked_scatter_(every.mask, versions))

    def gather_tensor(self, tensor: Tensor) -> list[Tensor]:
        """The tensor of each engine, from one of its processes."""
        return self.process_group.gather(tensor)[:: self.span]

    def score(self, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> list[Tensor]:
        """[T_n] log-probabilities of the tokens of N responses; each process scores all of its arguments."""
        if self.engine is None:
            raise ComponentDied("only the main process has an engine to score with")
        return self.engine.score(prompts, responses)

    def publish(
        self, weights: Mapping[str, Tensor], version: int, expected: ExpectedLogp | None = None
    ) -> dict[str, float]:
        """Load these weights; returns what the sync check measures, if there is one and `expected` is given."""
        self.version, measured = NO_WEIGHTS, {}
        if self.engine is None:
            for name in weights:
                weights[name]  # an access gathers a weight from the shards of all processes: each has to take part
        else:
            self.engine.publish(weights, version)
            if self.sync_check is not None and expected is not None:
                measured = self.sync_check.check(self.engine, expected, self.response_check)
        self.version = version
        return measured

    def enter(self, phase: Phase) -> None:
        """Prepare for the next phase."""
        if self.engine is not None:
            self.engine.enter(phase)
            if self.engine.version == NO_WEIGHTS:  # it dropped them to sleep
                self.version = NO_WEIGHTS

    def close(self) -> None:
        """Release everything."""
        if self.engine is not None:
            self.engine.close()
