"""QRPO: the regression of PMD-part on quantile rewards, whose partition is known in closed form."""

from dataclasses import dataclass
from typing import Literal

import torch

from pmdkit.objectives import baselines
from pmdkit.objectives.batch import Batch, Groups, Norm, Tau, one_if_zero
from pmdkit.objectives.objective import temperature
from pmdkit.options import Checked


@dataclass(frozen=True)
class QRPO(Checked):
    r"""Regress the log ratio on the quantile of the reward, centred by a log partition in closed form.

    $$ L = \tfrac{1}{2\tau}\, E_{y\sim\pi_{old}}\big[(R - \tau\log Z - \tau\log\tfrac{\pi}{\pi_{old}})^2\big], \quad
       R = F(r) = P_{y'\sim\pi_{old}}(r' \le r), \quad Z = \int_0^1 e^{u/\tau} du = \tau\,(e^{1/\tau} - 1) $$

    Where rewards tie, F jumps from a = P(r' < r) to b = P(r' <= r), and Z is exact again with
    $R = \tau\log\big(\tfrac{1}{b-a}\int_a^b e^{u/\tau}du\big)$ (`ties="exact"`).

    Source: arXiv:2507.08068 (QRPO); code CLAIRE-Labo/quantile-reward-policy-optimization, `trainers/qrpo.py`, transform
    "identity". Its equations were read from that code.
    Differs: the source anchors at a fixed reference with reference rewards drawn beforehand; here the anchor is
    pi_old, and its other draws give the reference rewards. `ties="exact"` is pmdkit's: the source counts ties as
    `ties="weak"`, with which Z is too small for rewards that tie. Z is not simplified to tau e^{1/tau}, and the square
    is divided by 2 tau. The source's other transforms are left out.
    Shapes: reward [P, G] to advantage [P, G]; batch of N rows to loss [N], a pure number: quantiles have no unit.

    Attributes:
        tau: temperature in units of the quantile, > 0, or a rule based on the group's rewards. The scale of rewards
            does not matter.
        ties: "exact" averages e^{u/tau} over the jump, "weak" takes its upper end.
        norm: length rule, see `row_weight`.

    Good values: tau from 0.2 to 1 with pi_old as the anchor. The source's 3e-4 to 3e-3 are for a fixed reference and
    one epoch of offline data.
    Watch: with two rewards, one exact step takes pass rate p to (1 - e^{-p/tau}) / (1 - e^{-1/tau}), whatever a success
    is worth. With "weak", a group with all responses wrong is raised like one with all right. The first step from few
    draws is biased, except with "weak" at a fixed tau.
    """

    tau: Tau = 0.5
    ties: Literal["exact", "weak"] = "exact"
    norm: Norm = "none"

    @property
    def unbiased(self) -> bool:
        """Whether the first step is unbiased: with ties "weak", a share of the other draws, and no rule for tau."""
        return self.ties == "weak" and not callable(self.tau)

    @property
    def equal_groups(self) -> str:
        """Equal rewards "anchor" with ties "exact", which gives them advantage 0; with "weak" it is more: "learn"."""
        return "anchor" if self.ties == "exact" else "learn"

    def advantage(self, groups: Groups) -> torch.Tensor:
        """[P, G] quantile reward minus tau log Z."""
        tau = temperature(self, groups)[:, None]
        below, reached = quantiles(groups)
        quantile = reached if self.ties == "weak" else tau_log_mean_exp(below, reached, tau)
        zero, one = torch.zeros_like(reached), torch.ones_like(reached)
        return baselines.zero_absent(quantile - tau_log_mean_exp(zero, one, tau), groups)

    def loss(self, batch: Batch) -> torch.Tensor:
        """[N] squared residual of the regression."""
        residual = batch.advantage - batch.tau * batch.seq_log_ratio
        return residual**2 / (2 * batch.tau)


def quantiles(groups: Groups) -> tuple[torch.Tensor, torch.Tensor]:
    """Shares of the others with a lower reward, and with a lower or an equal one, both [P, G].

    On the full support they are P(r' < r) and P(r' <= r) under pi_old, the row itself included.
    """
    baselines.require_peers(groups)
    # an absent row has no mass, so its place in the order does not matter; NaN has no place
    reward = torch.where(groups.present, groups.reward, baselines.lowest_reward(groups))
    ordered, order = reward.sort(1)
    mass = torch.where(groups.present, groups.mass, 0.0)
    reached_by = torch.nn.functional.pad(mass.gather(1, order).cumsum(1), (1, 0))
    below = reached_by.gather(1, torch.searchsorted(ordered, reward))
    reached = reached_by.gather(1, torch.searchsorted(ordered, reward, right=True))
    total = reached_by[:, -1:]
    if groups.sampled:
        reached, total = reached - mass, total - mass
    return below / one_if_zero(total), reached / one_if_zero(total)


def tau_log_mean_exp(low: torch.Tensor, high: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
    """tau log of the mean of e^{u / tau} over u in [low, high]; an interval of width 0 gives its position.

    Computed as high + tau log((1 - e^{-x}) / x) with x = (high - low) / tau, which does not overflow at small tau.
    """
    x = (high - low) / tau
    wide = x > 0
    x = torch.where(wide, x, 1.0)
    return high + torch.where(wide, tau * (-torch.expm1(-x) / x).log(), 0.0)
