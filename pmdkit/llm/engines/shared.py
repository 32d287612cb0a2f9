"""One engine for the processes of a team: prompts are dealt out, responses put together, a lost engine is mended.

`write` and `give` concern this process alone and may run in any thread; everything else is done by all together.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pmdkit.errors import ComponentDied
from pmdkit.llm.canary import Canary, Expected
from pmdkit.llm.engines.answer import ANY, Form
from pmdkit.llm.engines.protocol import Engine, EngineLost, Phase, Progress, Responses, Sampling, Tokens
from pmdkit.llm.shards import unseen
from pmdkit.team import ALONE, Team

TRIES = 3
NOTHING = -1  # version of an engine without weights


@dataclass(frozen=True)
class Work:
    """A call of `generate`, the same in every process."""

    prompts: Sequence[Tokens]
    group: int
    seeds: NDArray
    sampling: Sampling
    progress: Progress | None = None


class SharedEngine:
    """An Engine over the engines of a team's processes.

    A row depends on its prompt and its seed, so who writes it does not matter, up to rounding. An engine that is lost
    is restarted, gets the weights again, and writes again what it was asked for; the third loss in a row ends the run.

    Args:
        engine: of this process; None where another process has the only one.
        team: every process calls every method, in the same order.
        end: token that fills up rows.
        central: only the main process has an engine.
        span: consecutive processes that are one engine together, its tensor-parallel ranks.
        joined: engines of several processes begin and end together, so that one alone cannot be restarted.
        canary: compares engine and trainer after every publish.
        form: what every answer must look like.
    """

    def __init__(
        self,
        engine: Engine | None,
        team: Team = ALONE,
        end: int = 0,
        *,
        central: bool = False,
        span: int = 1,
        joined: bool = False,
        canary: Canary | None = None,
        form: Form = ANY,
    ) -> None:
        self.engine = engine
        self.team = team
        self.end = end
        self.central = central
        self.span = span
        self.joined = joined
        self.canary = canary
        self.form = form
        self.version = NOTHING
        self.failures = 0  # in a row
        self.restarts = 0  # in all
        self.warn: Callable[[str], None] = lambda sentence: None
        self.found: dict[str, float] = {}  # what the canary measured last
        self.given: tuple[Mapping[str, Tensor], int, Expected | None] | None = None

    def generate(
        self,
        prompts: Sequence[Tokens],
        group: int,
        seeds: NDArray,
        sampling: Sampling,
        progress: Progress | None = None,
    ) -> Responses:
        """`group` responses to each of P prompts, prompt-major, in every process."""
        work = Work(prompts, group, seeds, sampling, progress)
        while True:
            part, lost = self.tried(lambda: self.write(work))
            if not self.team.any(lost is not None):
                return self.join(part)
            self.mend(lost)

    def share(self, count: int) -> range:
        """Which of so many prompts this process writes."""
        if self.central:
            return range(count if self.team.main else 0)
        if self.span == 1:
            return self.team.share([1.0] * count)[self.team.rank]
        each, engines = self.team.rank // self.span, self.team.size // self.span
        return range(count * each // engines, count * (each + 1) // engines)

    def write(self, work: Work) -> Responses | None:
        """This process's share; None where it has none."""
        mine = self.share(len(work.prompts))
        if not mine or self.engine is None:
            return None
        self.engine.enter("rollout")
        parts, told = len(work.prompts) / len(mine), work.progress
        drawn = self.engine.generate(
            work.prompts[mine.start : mine.stop],
            work.group,
            work.seeds[mine.start * work.group : mine.stop * work.group],
            work.sampling,
            None if told is None else lambda tokens, ended: told(int(tokens * parts), int(ended * parts)),
        )
        self.form.check(drawn, len(mine), work.group, work.sampling)
        return drawn

    def join(self, drawn: Responses | None) -> Responses:
        """All shares, in every process."""
        self.failures = 0
        if self.team.size == 1:
            assert drawn is not None
            return drawn
        empty = torch.zeros(0, 1)
        tokens = self.parts(empty.long() if drawn is None else drawn.tokens.cpu())
        logp = self.parts(empty if drawn is None else drawn.logp.cpu())
        mask = self.parts(empty.bool() if drawn is None else drawn.mask.cpu())
        ended = self.parts(empty[:, 0].bool() if drawn is None else drawn.ended.cpu())
        versions = self.parts(torch.tensor([] if drawn is None else [drawn.version], dtype=torch.long))
        width = max(part.shape[1] for part in tokens)
        return Responses(
            tokens=torch.cat([padded(part, width, self.end) for part in tokens]),
            logp=torch.cat([padded(part, width, 0.0) for part in logp]),
            mask=torch.cat([padded(part, width, False) for part in mask]),
            ended=torch.cat(ended),
            version=same_version(torch.cat(versions).tolist()),
        )

    def parts(self, tensor: Tensor) -> list[Tensor]:
        """What each engine has, one process of each."""
        return self.team.gather(tensor)[:: self.span]

    def score(self, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> list[Tensor]:
        """[T_n] log-probabilities of the tokens of N responses; each process scores all of what it is given."""
        if self.engine is None:
            raise ComponentDied("only the main process has an engine to score with")
        return self.engine.score(prompts, responses)

    def publish(self, weights: Mapping[str, Tensor], version: int, expected: Expected | None = None) -> None:
        """Take over these weights, then ask the canary, where there is one and the trainer's numbers are given."""
        self.given = weights, version, expected
        _, lost = self.tried(lambda: self.give(weights, version, expected))
        while self.team.any(lost is not None):
            lost = self.mend_once(lost)

    def give(self, weights: Mapping[str, Tensor], version: int, expected: Expected | None) -> None:
        """Publish to the engine of this process. Every weight is looked at, whatever becomes of the engine."""
        visited = Visited(weights)
        self.version = NOTHING
        try:
            if self.engine is not None:
                self.engine.publish(visited, version)
        finally:
            visited.rest()  # looking at a weight may put it together from the shares of all processes
        self.version = version
        if self.canary is not None and self.engine is not None and expected is not None:
            self.found = self.canary.check(self.engine, expected, self.form)

    def mend(self, lost: EngineLost | None) -> None:
        """After a loss in any process: until every engine has the weights again."""
        again: EngineLost | None = self.mend_once(lost)
        while self.team.any(again is not None):
            again = self.mend_once(again)

    def mend_once(self, lost: EngineLost | None) -> EngineLost | None:
        """Restart the engine of this process if it is the lost one, and publish; returns what went wrong again."""
        assert self.given is not None
        self.count(lost)
        weights, version, expected = self.given
        if lost is None:
            Visited(weights).rest()
            return None
        return self.tried(lambda: self.renew(weights, version, expected))[1]

    def renew(self, weights: Mapping[str, Tensor], version: int, expected: Expected | None) -> None:
        """Restart the engine of this process and give it weights."""
        visited = Visited(weights)
        try:
            if self.engine is not None:
                self.engine.restart()
            self.give(visited, version, expected)
        finally:
            visited.rest()

    def count(self, lost: EngineLost | None) -> None:
        """One more loss in a row; too many end the run."""
        self.failures += 1
        self.restarts += lost is not None
        said = str(lost) if lost is not None else "the engine of another process was lost"
        if self.failures >= TRIES or self.joined:
            raise ComponentDied(
                f"{said}; lost {self.failures} times in a row: the last checkpoint is intact, mend the engine and go "
                "on with --resume"
            ) from lost
        if lost is not None:
            self.warn(f"{said}; it is restarted and writes again what it was asked for")

    def tried(self, call: Callable[[], Responses | None]) -> tuple[Responses | None, EngineLost | None]:
        """What a call returns, or how the engine was lost in it."""
        try:
            return call(), None
        except EngineLost as lost:
            self.version = NOTHING
            return None, lost

    def enter(self, phase: Phase) -> None:
        """Told what comes next."""
        if self.engine is not None:
            self.engine.enter(phase)

    def restart(self) -> None:
        """Begin anew."""
        self.version = NOTHING
        if self.engine is not None:
            self.engine.restart()

    def close(self) -> None:
        """Let everything go."""
        if self.engine is not None:
            self.engine.close()


class Visited(Mapping[str, Tensor]):
    """Weights, and which of them have been looked at. Every process looks at all of them, once and in their order."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = weights
        self.left = dict.fromkeys(weights)

    def __getitem__(self, name: str) -> Tensor:
        self.left.pop(name, None)
        return self.weights[name]

    def __contains__(self, name: object) -> bool:
        return name in self.weights  # Mapping's own would look at the weight

    def unseen(self, name: str) -> Tensor:
        """Of the right shape, which does not count as looking."""
        return unseen(self.weights, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.weights)

    def __len__(self) -> int:
        return len(self.weights)

    def rest(self) -> None:
        """Look at those that nobody has looked at."""
        for name in list(self.left):
            self[name]


def same_version(versions: Sequence[int]) -> int:
    """The one version of all parts of a rollout."""
    if len(set(versions)) > 1:
        raise ComponentDied(f"engines answered with weights of versions {sorted(set(versions))}; expected one version")
    return versions[0] if versions else NOTHING


def padded(rows: Tensor, width: int, value: float) -> Tensor:
    """[n, T] filled up to a width."""
    return F.pad(rows, (0, width - rows.shape[1]), value=value)
