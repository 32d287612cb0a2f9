"""Verified problems as the Task of a loop: which problems a step asks, and the rewards of the responses."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.llm.engines.base import Finished, Tokens
from pmdkit.llm.epochs import apportion, epoch_sampler
from pmdkit.llm.grading import MOST, Reader, Rows, episode_item, grade_episodes, stop_if_ungraded
from pmdkit.llm.rollouts import response_tokens
from pmdkit.llm.verdicts_over_ranks import SharedGrader
from pmdkit.loop import Rollouts
from pmdkit.randomness import derive
from strict_answers import Grader, Item, Verdict

if TYPE_CHECKING:
    from pmdkit.llm.rewards import RewardSum


SCALES = {"zero-one": (0.0, 1.0), "plus-minus-one": (-1.0, 1.0)}


@dataclass(frozen=True)
class GradedStep:
    """The responses of a step as text, and the verifier's verdict on each."""

    items: list[Item]
    verdicts: list[Verdict]


@dataclass
class MathTask:
    """Problems in a shuffled order that is a function of (seed, step), and rewards from a grader.

    Attributes:
        problems: what may be asked.
        count: P, prompts per step.
        seed: of the order.
        grader: grades texts; the same text and answer get the same verdict after a restart.
        read: decodes response tokens into text, without control tokens.
        ends: ids that end a response; a response that does not end in one of them was cut off.
        scale: a key of SCALES, the rewards of wrong and right answers.
        most_unscored: share of responses without a verdict above which the run stops; one alone never stops it.
        rows: makes the named arguments of reward functions that ask for them, see `make_rows`.
        rewards: combines the verdicts and further parts into the reward.
        last: the step that was graded last.
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
    last: GradedStep = field(default=GradedStep([], []), init=False)

    def __post_init__(self) -> None:
        self.low, self.high = SCALES[self.scale]

    @property
    def graders(self) -> list[Grader | SharedGrader]:
        """Those of all parts of the reward."""
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

    def grade_ahead(self, prompts: torch.Tensor) -> Finished:
        """The callback of an engine for each finished response to these prompts, so that it is graded at once.

        `reward` asks for the same verdicts later, so nothing depends on which was faster. A grader that cannot grade
        ahead is asked only then.
        """
        asked = [self.problems.problem(number) for number in prompts.tolist()]
        submit = getattr(self.grader, "submit", None)

        def finished(place: int, tokens: Tokens) -> None:
            if submit is not None:
                submit(lambda: self.item(tokens, asked[place], place))

        return finished

    def reward(self, rollouts: Rollouts) -> torch.Tensor:
        """[P, G] float64 reward of each response; NaN where the verifier reached no verdict."""
        items = self.items(rollouts)
        verdicts = grade_episodes(self.grader, items, rollouts.episodes)
        self.last = GradedStep(items, verdicts)
        stop_if_ungraded(verdicts, self.most_unscored, "no update was made from them", rollouts.episodes)
        values = [torch.nan if v.value is None else self.low + (self.high - self.low) * v.value for v in verdicts]
        reward = torch.tensor(values, dtype=torch.float64)
        if self.rewards is not None:
            reward = self.rewards.total(reward, items, rollouts.extent, rollouts.width)
        return reward.view(rollouts.mass.shape)

    def items(self, rollouts: Rollouts) -> list[Item]:
        """The items for the grader, row by row."""
        size = rollouts.mass.shape[1]
        asked = [self.problems.problem(number) for number in rollouts.prompts.tolist()]
        if rollouts.episodes is not None:
            episodes = enumerate(rollouts.episodes)
            return [episode_item(episode, asked[n // size], n // size, self.rows) for n, episode in episodes]
        rows = enumerate(response_tokens(rollouts))
        return [self.item(row.tolist(), asked[n // size], n // size) for n, row in rows]

    def item(self, tokens: Tokens, asked: Problem, place: int = 0) -> Item:
        """The grader's item for one response to the prompt at this place of the step."""
        row = None if self.rows is None else self.rows(tokens, asked, place)
        return Item(self.read(tokens), asked.answer, tokens[-1] not in self.ends, asked.problem, row)
