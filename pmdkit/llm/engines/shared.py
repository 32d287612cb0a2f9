"""One engine per process: each writes the responses to its share of the prompts, and all of them get all."""

from collections.abc import Mapping, Sequence

import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from pmdkit.llm.engines.protocol import Engine, Phase, Progress, Responses, Sampling, Tokens
from pmdkit.team import Team


class SharedEngine:
    """An Engine that splits prompts over the processes of a team.

    A row depends on its prompt and its seed, so who writes it does not matter, up to rounding.

    Args:
        engine: of this process.
        team: every process calls every method, in the same order.
        end: token that fills up rows.
    """

    def __init__(self, engine: Engine, team: Team, end: int) -> None:
        self.engine = engine
        self.team = team
        self.end = end

    @property
    def version(self) -> int:
        """Of the weights last published."""
        return self.engine.version

    @version.setter
    def version(self, version: int) -> None:
        self.engine.version = version

    def generate(
        self,
        prompts: Sequence[Tokens],
        group: int,
        seeds: NDArray,
        sampling: Sampling,
        progress: Progress | None = None,
    ) -> Responses:
        """`group` responses to each of P prompts, prompt-major, in every process."""
        mine = self.team.share([1.0] * len(prompts))[self.team.rank]
        drawn, size = None, self.team.size
        if mine:
            some = slice(mine.start * group, mine.stop * group)
            drawn = self.engine.generate(
                prompts[mine.start : mine.stop],
                group,
                seeds[some],
                sampling,
                None if progress is None else lambda tokens, ended: progress(tokens * size, ended * size),
            )
        empty = torch.zeros(0, 1)
        tokens = self.team.gather(empty.long() if drawn is None else drawn.tokens.cpu())
        logp = self.team.gather(empty if drawn is None else drawn.logp.cpu())
        mask = self.team.gather(empty.bool() if drawn is None else drawn.mask.cpu())
        ended = self.team.gather(empty[:, 0].bool() if drawn is None else drawn.ended.cpu())
        width = max(part.shape[1] for part in tokens)
        return Responses(
            tokens=torch.cat([padded(part, width, self.end) for part in tokens]),
            logp=torch.cat([padded(part, width, 0.0) for part in logp]),
            mask=torch.cat([padded(part, width, False) for part in mask]),
            ended=torch.cat(ended),
            version=self.engine.version if drawn is None else drawn.version,
        )

    def score(self, prompts: Sequence[Tokens], responses: Sequence[Tokens]) -> list[Tensor]:
        """[T_n] log-probabilities of the tokens of N responses; each process scores all of what it is given."""
        return self.engine.score(prompts, responses)

    def publish(self, weights: Mapping[str, Tensor], version: int) -> None:
        """Take over these weights."""
        self.engine.publish(weights, version)

    def enter(self, phase: Phase) -> None:
        """Told what comes next."""
        self.engine.enter(phase)

    def close(self) -> None:
        """Let everything go."""
        self.engine.close()


def padded(rows: Tensor, width: int, value: float) -> Tensor:
    """[n, T] filled up to a width."""
    return F.pad(rows, (0, width - rows.shape[1]), value=value)
