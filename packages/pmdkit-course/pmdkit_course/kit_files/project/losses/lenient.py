"""The loss of the good report: PMD-mean in which a response below the mean counts for less."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, where

from pmdkit.objectives import Batch, Groups, Norm, Tau
from pmdkit.objectives.baselines import minus_mean
from pmdkit.options import Checked


@dataclass(frozen=True)
class Lenient(Checked):
    r"""Regress as PMD-mean does, with a smaller weight on responses below the mean.

    $$ L = \frac{1}{2\tau}\, E_{y\sim\pi_{old}}\big[w\,(\Delta - \tau\log\tfrac{\pi}{\pi_{old}})^2\big],
       \quad w = 1 \text{ if } \Delta \ge 0, \text{ else } c $$

    Source: the project report `reports/good.md`; PMD-mean is arXiv:2602.05933.
    Differs: at c = 1 it is PMD-mean.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N], reward units.

    Attributes:
        tau: temperature in reward units, > 0.
        norm: length rule, see `row_weight`.
        below: the weight c of a response below the mean.

    Good values: tau as for PMD-mean; c = 0.25 in the report.
    Watch: the first step is not the policy gradient: what pushes down is c times as strong as what pushes up.
    """

    equal_groups: ClassVar[str] = "anchor"
    first_step_is_policy_gradient: ClassVar[bool] = False

    tau: Tau = 0.05
    norm: Norm = "length"
    below: float = 0.25

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] reward minus the mean reward of the peers."""
        return minus_mean(groups, "loo")

    def loss(self, batch: Batch) -> Tensor:
        """[N] weighted squared residual of the regression."""
        residual = batch.advantage - batch.tau * batch.seq_log_ratio
        return where(batch.advantage < 0, self.below, 1.0) * residual**2 / (2 * batch.tau)
