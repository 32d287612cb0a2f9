"""REBEL: regress differences of log ratios on differences of rewards; no baseline, no partition."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm, Tau
from pmdkit.options import Checked


@dataclass(frozen=True)
class REBEL(Checked):
    r"""Regress log ratios on rewards over all pairs of a group: the variance of r - tau s.

    $$ L = \tfrac{1}{4\tau}\, E_{y,y'}\big[(d - d')^2\big] = \tfrac{1}{2\tau}\, E\big[(d - E\,d)^2\big],
       \quad d = r - \tau\log\tfrac{\pi}{\pi_{old}} $$

    Source: arXiv:2404.16767 (REBEL), eta = 1 / tau; arXiv:2504.19599 (GVPO) is this loss times 2 tau.
    Differs: the source draws one pair per prompt; here all ordered pairs of the group are used, written as a
    centred regression, and the loss of the source's code is scaled by tau / 4 so that the first step is the policy
    gradient.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows (whole groups) to loss [N], reward units.

    Attributes:
        tau: temperature in reward units, > 0, or a rule based on the group's rewards.
        norm: length rule, see `row_weight`. "length" weights the rows of a group unequally: no longer pairs.

    Good values: tau as for PMD-mean; 4 to 16 responses per prompt.
    Watch: micro-batches must hold whole groups. The mean includes a response's own reward, so the first step is
    (G - 1) / G of RLOO's. On the full support the solution is that of PMD-part: nothing holds large ratios back.
    """

    whole_groups: ClassVar[bool] = True
    equal_groups: ClassVar[str] = "anchor"
    population: ClassVar[str | None] = "pmd_part"

    tau: Tau = 0.05
    norm: Norm = "none"

    def advantage(self, groups: Groups) -> Tensor:
        """[P, G] reward minus the mean reward of the group."""
        return baselines.zero_absent(groups.reward - baselines.mean_baseline(groups), groups)

    def loss(self, batch: Batch) -> Tensor:
        """[N] squared centred residual."""
        residual = batch.advantage - batch.tau * batch.centred(batch.seq_log_ratio)
        return residual**2 / (2 * batch.tau)
