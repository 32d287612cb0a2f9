"""chi2-PO: the regression of PMD-mean with a link that itself penalises large ratios."""

from dataclasses import dataclass
from typing import ClassVar

import torch

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm, Tau
from pmdkit.options import Checked, Share


@dataclass(frozen=True)
class Chi2PO(Checked):
    r"""Regress a mix of the log ratio and the ratio on the reward, centred by the mean reward.

    $$ L = \tfrac{1}{2\tau}\, E_{y\sim\pi_{old}}\big[(\Delta - \tau\,[k s + (1-k)(e^s - 1)])^2\big],
       \quad s = \log\tfrac{\pi}{\pi_{old}}, \quad \Delta = r - E_{\pi_{old}}[r] $$

    Source: arXiv:2407.13399 (chi2-PO), whose link is z + log z of the ratio z.
    Differs: an online regression on rewards instead of a preference loss, without the source's clip of the link; the
    link is halved and shifted so that it is 0 with slope 1 at s = 0, where every objective takes the same step.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N], reward units.

    Attributes:
        tau: temperature in reward units, > 0, or a rule based on the group's rewards.
        kl_share: k, from 0 (pure chi2) to 1 (pure KL: PMD-mean); 0.5 is the source's mix.
        norm: length rule, see `row_weight`.

    Good values: kl_share = 0.5, tau as for PMD-mean.
    Watch: e^s is the ratio of a whole response: it overflows at 709 nats and its gradient vanishes far below 0. With
    k = 0 the solution is pi_old (1 + Delta / tau), which exists only where tau exceeds the largest -Delta.
    """

    unbiased: ClassVar[bool] = True
    equal_groups: ClassVar[str] = "anchor"

    tau: Tau = 0.05
    kl_share: Share = 0.5
    norm: Norm = "none"

    @property
    def population(self) -> str | None:
        """`theory.pmd_mean` at kl_share 1, where the link is the log ratio; otherwise none is known."""
        return "pmd_mean" if self.kl_share == 1 else None

    def advantage(self, groups: Groups) -> torch.Tensor:
        """[P, G] reward minus the mean reward of the peers."""
        return baselines.zero_absent(groups.reward - baselines.peer_mean(groups), groups)

    def loss(self, batch: Batch) -> torch.Tensor:
        """[N] squared residual of the regression."""
        s = batch.seq_log_ratio
        link = s
        if self.kl_share < 1:  # at 1, the exponential must stay out, because 0 * inf is NaN
            link = self.kl_share * s + (1 - self.kl_share) * torch.expm1(s)
        return (batch.advantage - batch.tau * link) ** 2 / (2 * batch.tau)
