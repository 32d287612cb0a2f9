"""Combine several [[reward]] tables into one reward, and DAPO's penalty for responses near the budget.

MathTask gets the verdicts of the first table; `RewardSum` combines them with the others into the step's reward.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pmdkit.llm import grading
from pmdkit.llm.grading import SharedGrader
from pmdkit.process_group import SINGLE, ProcessGroup
from pmdkit.specs.llm import SHIPPED_REWARDS, RewardTable, RewardTerm, RolloutTable
from strict_answers import Grader, Item, Verdict

OVERLONG = SHIPPED_REWARDS[1]


def soft_overlong_punishment(length: Tensor, width: int, cache: int) -> Tensor:
    r"""From 0 down to -1 over the last tokens of the budget, so that responses learn to end before they are cut off.

    $$ R(y) = \min\Big(0, \frac{L_{max} - L_{cache} - |y|}{L_{cache}}\Big) $$

    Source: arXiv:2503.14476 (DAPO), equation 13; `get_soft_overlong_punishment` of TRL.

    `length` is in tokens, `width` is L_max, the budget, and `cache` L_cache, over whose tokens the penalty grows.
    """
    return ((width - cache - length.double()) / cache).clamp(-1, 0)


@dataclass(frozen=True)
class Term:
    """A reward in addition to the first: a function of the length, or a grader's verdicts."""

    table: RewardTerm
    grader: Grader | SharedGrader | None
    most_unscored: float = grading.MOST

    def values(self, items: Sequence[Item], length: Tensor, width: int) -> Tensor:
        """[N] float64; NaN where there is no verdict."""
        if self.grader is None:
            return soft_overlong_punishment(length, width, self.table.soft_punish_cache or 1)
        verdicts = self.grader.grade(items)
        without = f"no update was made without the reward {self.table.part}"
        grading.stop_if_ungraded(verdicts, self.most_unscored, without)
        return torch.tensor([torch.nan if v.value is None else v.value for v in verdicts], dtype=torch.float64)


@dataclass(frozen=True)
class RewardSum:
    """The reward of a step as a weighted sum: the first [[reward]], which decides what passes, and the others.

    A response that lacks a verdict in any part has none: its reward is NaN, never the sum of the rest. With
    `mask_cut_off` neither has one that was cut off.
    """

    table: RewardTable
    terms: Sequence[Term]
    mask_cut_off: bool

    def total(
        self, first: Tensor, items: Sequence[Item], length: Tensor, width: int
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """[N] the rewards, and [N] unweighted values of each part by name; NaN without a verdict.

        Args:
            first: [N] values of the first part on its scale.
            length, width: [N] and the budget, tokens.
        """
        parts = {self.table.part: first}
        total = self.table.weight * first
        for term in self.terms:
            values = parts[term.table.part] = term.values(items, length, width)
            total = total + term.table.weight * values
        if self.mask_cut_off:
            total = torch.where(torch.tensor([item.truncated for item in items]), torch.nan, total)
        return total, parts

    def columns(self, verdicts: Sequence[Verdict], parts: Mapping[str, Tensor]) -> dict[str, Any]:
        """Columns of metrics.jsonl: the mean of each part, named as TRL names it, and the share that passes."""
        correct = [verdict.correct is True for verdict in verdicts if verdict.scored]
        means = {name: part[~part.isnan()].mean().item() for name, part in parts.items()}
        return {
            **({"pass_rate": sum(correct) / len(correct) if correct else None} if self.terms else {}),
            **{f"rewards/{name}/mean": None if math.isnan(mean) else mean for name, mean in means.items()},
        }


def make_reward_sum(table: RewardTable, rollout: RolloutTable, process_group: ProcessGroup = SINGLE) -> RewardSum:
    """The reward sum of a recipe."""
    terms, score = [], rollout.cut_off == "score"
    for term in table.others:
        grader: Grader | SharedGrader | None = None
        if term.grade != OVERLONG:
            grader = grading.make_grader(term, score, process_group)
        terms.append(Term(term, grader, table.most_unscored))
    return RewardSum(table, terms, rollout.cut_off == "mask")
