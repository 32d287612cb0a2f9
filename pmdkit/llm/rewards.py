"""Several rewards: what each [[reward]] table adds to the first, and DAPO's penalty for responses near the budget.

MathTask asks for the verdicts of the first table; `RewardSum` makes the step's reward of them and of the others.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pmdkit.config import SHIPPED_REWARDS, RewardTable, RewardTerm, RolloutTable
from pmdkit.distributed import SINGLE, ProcessGroup
from pmdkit.envs.verifier import Grader, Item, Verdict
from pmdkit.llm import task

OVERLONG = SHIPPED_REWARDS[1]


def soft_overlong_punishment(length: Tensor, width: int, cache: int) -> Tensor:
    r"""0 down to -1 over the last tokens of the budget, so that a response ends before it is cut off.

    $$ R(y) = \min\Big(0, \frac{L_{max} - L_{cache} - |y|}{L_{cache}}\Big) $$

    Source: arXiv:2503.14476 (DAPO), equation 13; `get_soft_overlong_punishment` of TRL.

    Args:
        length: tokens of responses, at most `width`.
        width: L_max, the budget in tokens.
        cache: L_cache, the tokens of it over which the penalty grows.
    """
    return ((width - cache - length.double()) / cache).clamp(-1, 0)


@dataclass(frozen=True)
class Term:
    """A reward beside the first: a function of the length, or a grader's verdicts."""

    table: RewardTerm
    grader: "Grader | task.SharedGrader | None"
    most_unscored: float = task.MOST

    def values(self, items: Sequence[Item], length: Tensor, width: int) -> Tensor:
        """[N] float64; NaN where there is no verdict."""
        if self.grader is None:
            assert self.table.soft_punish_cache is not None
            return soft_overlong_punishment(length, width, self.table.soft_punish_cache)
        verdicts = self.grader.grade(items)
        task.stop_if_ungraded(verdicts, self.most_unscored, f"no update was made without the reward {self.table.part}")
        return as_values(verdicts)


class RewardSum:
    """The reward of a step from several parts, or with responses that were cut off left out.

    No verdict in one part is no verdict on the response: its reward is NaN, never the sum of the rest.

    Args:
        table: the first [[reward]], whose verdicts decide what passes.
        terms: the others.
        mask_cut_off: responses that were cut off count for nothing.

    Attributes:
        parts: of the last step, by name: [N] values before their weights, NaN without a verdict.
    """

    def __init__(self, table: RewardTable, terms: Sequence[Term], mask_cut_off: bool) -> None:
        self.weight = table.weight
        self.name = table.part
        self.terms = terms
        self.mask_cut_off = mask_cut_off
        self.parts: dict[str, Tensor] = {}

    def total(self, first: Tensor, items: Sequence[Item], length: Tensor, width: int) -> Tensor:
        """[N] the rewards.

        Args:
            first: [N] values of the first part on its scale, NaN without a verdict.
            items: what was graded.
            length: [N] tokens.
            width: budget of them.
        """
        self.parts = {self.name: first}
        total = self.weight * first
        for term in self.terms:
            values = self.parts[term.table.part] = term.values(items, length, width)
            total = total + term.table.weight * values
        if self.mask_cut_off:
            total = torch.where(torch.tensor([item.truncated for item in items]), torch.nan, total)
        return total

    def columns(self, verdicts: Sequence[Verdict]) -> dict[str, Any]:
        """Columns of metrics.jsonl: the mean of each part, named as TRL names it, and the share that passes."""
        correct = [verdict.correct is True for verdict in verdicts if verdict.scored]
        means = {name: part[~part.isnan()].mean().item() for name, part in self.parts.items()}
        return {
            **({"pass_rate": sum(correct) / len(correct) if correct else None} if self.terms else {}),
            **{f"rewards/{name}/mean": None if math.isnan(mean) else mean for name, mean in means.items()},
        }

    def of_response(self, n: int) -> dict[str, float | None]:
        """Each part of one response, for the record."""
        return {name: None if bool(part[n].isnan()) else float(part[n]) for name, part in self.parts.items()}

    def close(self) -> None:
        """End the processes of the other graders."""
        for term in self.terms:
            if term.grader is not None:
                term.grader.close()

    def keep_verdicts(self, journal: Any) -> None:
        """Where the other graders write their verdicts down: the journal of the first."""
        for term in self.terms:
            if term.grader is not None:
                term.grader.journal = journal


def as_values(verdicts: Sequence[Verdict]) -> Tensor:
    """[N] float64, NaN without a verdict."""
    return torch.tensor([torch.nan if v.value is None else v.value for v in verdicts], dtype=torch.float64)


def make_reward_sum(
    table: RewardTable, rollout: RolloutTable, process_group: ProcessGroup = SINGLE
) -> RewardSum | None:
    """The parts of a recipe; None where the verdict is the reward."""
    mask = rollout.cut_off == "mask"
    if not table.others and table.weight == 1 and not mask:
        return None
    terms = []
    for term in table.others:
        grader: Grader | task.SharedGrader | None = None
        if term.grade != OVERLONG:
            mine = process_group.is_main_process
            grader = task.make_grader(term, score_cut_off=rollout.cut_off == "score") if mine else None
            grader = grader if process_group.size == 1 else task.SharedGrader(grader, process_group)
        terms.append(Term(term, grader, table.most_unscored))
    return RewardSum(table, terms, mask)
