"""DRO: PMD regression with a value (fixed, group mean or learned) in place of the log partition."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm, Tau
from pmdkit.options import Checked


@dataclass(frozen=True)
class DRO(Checked):
    r"""Regress the log ratio on the reward minus a value of the prompt.

    $$ L = \tfrac{1}{2\tau}\, E_{y\sim\pi_{old}}\big[(r - V(x) - \tau\log\tfrac{\pi}{\pi_{old}})^2\big] $$

    Source: arXiv:2405.19107 (DRO).
    Differs: the source anchors at a fixed reference on offline data and fits V by the same loss; here the anchor is
    pi_old, and V is given. Fit it elsewhere, to the mean of r - tau s; V = tau log Z makes the regression exact.
    `value="group"` takes the mean reward of the peers, which is PMD-mean without a length rule.
    The `dro` of verl and of Tinker is another loss, with a square of every token: `PMDScore`.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N], reward units.

    Attributes:
        tau: temperature in reward units, > 0, or a rule based on the group's rewards.
        value: "group", a number in reward units, or a function of the groups that returns [P] (a learned value).
        norm: length rule, see `row_weight`.

    Good values: tau as for PMD-mean; value = 0.5 is neutral for rewards {0, 1}, 0 for +-1.
    Watch: with a number or a function as value, one response per prompt is enough, and a group of equal rewards still
    gives a step. A value below tau log Z pushes every ratio up, against the normalisation; one that depends on the
    rewards of its own group biases the step.
    """

    tau: Tau = 0.05
    value: float | Literal["group"] | Callable[[Groups], torch.Tensor] = "group"
    norm: Norm = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        number = isinstance(self.value, (int, float)) and math.isfinite(self.value)
        if not (number or callable(self.value) or self.value == "group"):
            raise ValueError(f"value is {self.value!r}; expected 'group', a finite number, or a function of the groups")

    @property
    def needs_peers(self) -> bool:
        """Whether a group needs two draws: only where the value is the mean of the group."""
        return self.value == "group"

    @property
    def unbiased(self) -> bool:
        """Whether the first step is unbiased: not with a function, which may look at a response's own draw."""
        return not callable(self.value)

    @property
    def equal_groups(self) -> str:
        """Equal rewards "anchor" with the mean of the group; they "learn" with a value that may differ from them."""
        return "anchor" if self.value == "group" else "learn"

    @property
    def population(self) -> str | None:
        """`theory.pmd_mean` with the mean of the group as the value; otherwise none is known."""
        return "pmd_mean" if self.value == "group" else None

    def advantage(self, groups: Groups) -> torch.Tensor:
        """[P, G] reward minus the value."""
        usable = groups.present & (groups.scored[:, None] if self.needs_peers else True)
        return torch.where(usable, groups.reward - self.baseline(groups), 0.0)

    def baseline(self, groups: Groups) -> torch.Tensor:
        """[P, G] the value of each prompt, repeated for each response."""
        if isinstance(self.value, str):
            return baselines.peer_mean(groups)
        value = self.value(groups) if callable(self.value) else self.value
        value = torch.as_tensor(value, dtype=groups.reward.dtype, device=groups.reward.device)
        if value.shape not in ((), groups.reward.shape[:1]):
            raise ValueError(
                f"value returned shape {list(value.shape)}; expected [{len(groups.reward)}], one number per prompt"
            )
        return value.reshape(-1, 1).expand_as(groups.reward)

    def loss(self, batch: Batch) -> torch.Tensor:
        """[N] squared residual of the regression."""
        residual = batch.advantage - batch.tau * batch.seq_log_ratio
        return residual**2 / (2 * batch.tau)
