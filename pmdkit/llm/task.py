"""Verified problems as the Task of a loop: which problems a step asks, and the rewards of the responses."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from pmdkit.envs.math.problem import MathProblems
from pmdkit.llm.epochs import apportion, epoch_sampler
from pmdkit.llm.grading import MOST, Reader, Rows, SharedGrader, grade_episodes, make_items, stop_if_ungraded
from pmdkit.llm.rollouts import response_tokens
from pmdkit.loop import Rollouts
from pmdkit.randomness import derive
from strict_answers import Grader, Item, Verdict

if TYPE_CHECKING:
    from pmdkit.llm.rewards import RewardSum


SCALES = {"zero-one": (0.0, 1.0), "plus-minus-one": (-1.0, 1.0)}


@dataclass(frozen=True)
class GradedStep:
    """The responses of a step as text, the verifier's verdict on each, [N] reward, and its parts if it has several."""

    items: list[Item]
    verdicts: list[Verdict]
    reward: torch.Tensor
    parts: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass
class MathTask:
    """Problems in a shuffled order that is a function of (seed, step), and rewards from a grader.

    Attributes:
        count: P, prompts per step.
        grader: grades texts; the same text and answer get the same verdict after a restart.
        read: decodes response tokens into text, without control tokens.
        ends: ids that end a response; a response that does not end in one of them was cut off.
        scale: a key of SCALES, the rewards of wrong and right answers.
        most_unscored: share of responses without a verdict above which the run stops; one alone never stops it.
        rows: makes the named arguments of reward functions that ask for them, see `make_rows`.
    """

    problems: MathProblems
    count: int
    seed: int
    grader: Grader | SharedGrader
    read: Reader
    ends: Sequence[int]
    scale: str = "zero-one"
    most_unscored: float = MOST
    rows: Rows | None = None
    rewards: "RewardSum | None" = None
    newest: tuple[Rollouts, GradedStep] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        self.low, self.high = SCALES[self.scale]

    @property
    def graders(self) -> list[Grader | SharedGrader]:
        """The graders of all parts of the reward."""
        others = [] if self.rewards is None else [term.grader for term in self.rewards.terms]
        return [self.grader, *(grader for grader in others if grader is not None)]

    def prompts(self, step: int) -> torch.Tensor:
        """[P] numbers of the problems that a step asks; steps count from 1."""
        if not self.problems.sources:
            return torch.from_numpy(epoch_sampler(self.problems.train, step, self.count, self.seed))
        # each source gives its share, in its own order
        counts = apportion([share for _, share, _ in self.problems.sources], self.count)
        parts = [
            epoch_sampler(np.intersect1d(numbers, self.problems.train), step, count, derive(self.seed, "source", n))
            for n, (count, (_, _, numbers)) in enumerate(zip(counts, self.problems.sources, strict=True))
        ]
        return torch.from_numpy(np.concatenate(parts))

    def reward(self, rollouts: Rollouts) -> torch.Tensor:
        """[P, G] float64 reward of each response; NaN where the verifier reached no verdict."""
        return self.graded(rollouts).reward.view(rollouts.mass.shape)

    def graded(self, rollouts: Rollouts) -> GradedStep:
        """Texts, verdicts and rewards of these responses; the newest ones are remembered and not graded twice."""
        if self.newest is None or self.newest[0] is not rollouts:
            self.newest = rollouts, self.grade(rollouts)
        return self.newest[1]

    def grade(self, rollouts: Rollouts) -> GradedStep:
        """Grade responses."""
        asked = [self.problems.problem(number) for number in rollouts.prompts.tolist()]
        responses = [row.tolist() for row in response_tokens(rollouts)]
        ended = [row[-1] in self.ends for row in responses]
        items = make_items(asked, responses, ended, rollouts.episodes, self.read, self.rows)
        verdicts = grade_episodes(self.grader, items, rollouts.episodes)
        stop_if_ungraded(verdicts, self.most_unscored, "no update was made from them", rollouts.episodes)
        values = [torch.nan if v.value is None else self.low + (self.high - self.low) * v.value for v in verdicts]
        reward = torch.tensor(values, dtype=torch.float64)
        parts: dict[str, torch.Tensor] = {}
        if self.rewards is not None:
            reward, parts = self.rewards.total(reward, items, rollouts.extent, rollouts.width)
        return GradedStep(items, verdicts, reward, parts)
