"""Problems with a verifier as a Task of the loop: which problems a step asks, and what the answers earn."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pmdkit.envs.math.problem import MathProblems
from pmdkit.envs.math_answers import Grader, Item, Verdict
from pmdkit.learner import Rollouts
from pmdkit.llm.engines.protocol import Tokens
from pmdkit.llm.jury import SharedGrader
from pmdkit.llm.order import step_numbers
from pmdkit.llm.unscored import MOST, stop_if_unscored

SCALES = {"zero-one": (0.0, 1.0), "plus-minus-one": (-1.0, 1.0)}
Reader = Callable[[Tokens], str]


@dataclass(frozen=True)
class Judged:
    """The responses of a step as text, and what the verifier says of each."""

    items: list[Item]
    verdicts: list[Verdict]


class MathTask:
    """Problems in a shuffled order that is a function of (seed, step), and rewards from a grader.

    Args:
        problems: what may be asked.
        prompts: P, prompts per step.
        seed: of the order.
        grader: judges texts; the same text and answer get the same verdict after a restart.
        read: the text of response tokens, without control tokens.
        ends: ids that end a response; one that does not end in any was cut off.
        scale: a key of SCALES, the rewards of wrong and right.
        most_unscored: share of responses without a verdict above which the run stops; one alone never stops it.
    """

    def __init__(
        self,
        problems: MathProblems,
        prompts: int,
        seed: int,
        grader: Grader | SharedGrader,
        read: Reader,
        ends: Sequence[int],
        scale: str = "zero-one",
        most_unscored: float = MOST,
    ) -> None:
        self.problems = problems
        self.count = prompts
        self.seed = seed
        self.grader = grader
        self.read = read
        self.ends = frozenset(ends)
        self.low, self.high = SCALES[scale]
        self.most_unscored = most_unscored
        self.last: Judged | None = None

    def prompts(self, step: int) -> Tensor:
        """[P] numbers of the problems that a step asks, counted from 1."""
        return torch.from_numpy(step_numbers(self.problems.train, step, self.count, self.seed))

    def reward(self, rollouts: Rollouts) -> Tensor:
        """[P, G] float64 reward of each response; NaN where the verifier came to no verdict."""
        items = self.items(rollouts)
        verdicts = self.grader.grade(items)
        self.last = Judged(items, verdicts)
        stop_if_unscored(verdicts, self.most_unscored, "no update was made from them")
        return self.earned(verdicts).view(rollouts.mass.shape)

    def items(self, rollouts: Rollouts) -> list[Item]:
        """What the grader is asked, row by row."""
        size = rollouts.mass.shape[1]
        golds = [self.problems.problem(number).answer for number in rollouts.prompts.tolist()]
        lengths = rollouts.mask.sum(1).tolist()
        rows = [row[:length] for row, length in zip(rollouts.responses.tolist(), lengths, strict=True)]
        return [Item(self.read(row), golds[n // size], row[-1] not in self.ends) for n, row in enumerate(rows)]

    def earned(self, verdicts: Sequence[Verdict]) -> Tensor:
        """[N] rewards; NaN is no verdict."""
        values = [torch.nan if v.value is None else self.low + (self.high - self.low) * v.value for v in verdicts]
        return torch.tensor(values, dtype=torch.float64)
