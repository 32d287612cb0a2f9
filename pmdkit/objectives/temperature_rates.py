"""Temperatures from the pass rate: in proportion to it, or such that every prompt closes the same share of its gap."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from pmdkit.nearest import unknown
from pmdkit.objectives.options import check_range
from pmdkit.objectives.pass_rates import check_estimate, check_rewards, pass_rate
from pmdkit.objectives.vocabulary import Groups

LAWS = ("exact", "hard")


@dataclass(frozen=True)
class PassRate:
    r"""A temperature proportional to the pass rate: hard prompts move further, easy ones stay close.

    $$ \tau(x) = c\,(r_{max} - r_{min})\,\max(\hat p(x), p_{floor}) $$

    Source: suggested, not tested, in arXiv:2602.05933 (after Lemma pmdmean_refined).
    Differs: the floor, and the smoothed estimate (successes + 1/2) / (draws + 1); exact on the full support.

    Attributes:
        scale: c. For rare successes c = 1 / (eta log(1 / (1 - eta))) keeps the ideal contraction at eta.
        floor: pass rates below are treated as this one.
        rewards: (lowest, highest) reward; (-1, 1) for rewards of +-1.
        estimate: of the pass rate from draws, "jeffreys" or "pool": `pass_rate`.

    Good values: scale 0.14 (eta = 0.999) to 2.9 (eta = 0.5); floor 0.1 with 16 draws, which cannot see less.
    Watch: for PMD-mean. PMD-part's partition grows with e^{1/tau} at a hard prompt, and a rule that sees the own draw
    biases its first step.
    """

    scale: float = 0.14
    floor: float = 0.1
    rewards: tuple[float, float] = (0.0, 1.0)
    estimate: str = "jeffreys"

    def __post_init__(self) -> None:
        check_range("scale", self.scale, 1e-12)
        check_range("floor", self.floor, 1e-12, 1.0)
        check_rewards(self.rewards)
        check_estimate(self.estimate)

    def __call__(self, groups: Groups) -> Tensor:
        """[P] tau, reward units."""
        low, high = self.rewards
        return self.scale * (high - low) * pass_rate(groups, self.rewards, self.estimate).clamp_min(self.floor)


@dataclass(frozen=True)
class Contraction:
    r"""The temperature at which the exact PMD-mean update closes the same share eta of every prompt's gap to 1.

    $$ \tfrac{1}{\tau} = \rho_-\log\rho_+ - \rho_+\log\rho_-, \quad \rho_- = 1-\eta, \quad
       \rho_+ = 1 + \eta\,\tfrac{1-p}{p}, \quad 1 - p_{t+1} = (1-\eta)(1-p_t) $$

    Source: Theorem 1 of arXiv:2602.05933 for binary rewards, solved for tau: given eta, the two stationarity
    conditions are linear in 1/tau and lambda/tau^2.
    Differs: the paper goes from tau to eta. Its limit for p -> 0 is tau = p / (eta log(1 / (1 - eta))), the rule
    PassRate without its floor; law="hard" is that limit, used at every p.

    Attributes:
        eta: share of the gap to close in one exact update, in (0, 1).
        floor: pass rates below are treated as this one.
        rewards: (lowest, highest) reward; (-1, 1) for rewards of +-1.
        law: "exact" or "hard".
        estimate: of the pass rate from draws, "jeffreys" or "pool": `pass_rate`.

    Good values: eta = 0.5 to 0.9.
    Watch: ideal, for the exact update of one prompt with binary rewards; draws, shared weights and few gradient steps
    close less. For PMD-mean only.
    """

    eta: float = 0.5
    floor: float = 1e-3
    rewards: tuple[float, float] = (0.0, 1.0)
    law: str = "exact"
    estimate: str = "jeffreys"

    def __post_init__(self) -> None:
        check_range("eta", self.eta, 1e-6, 1 - 1e-6)
        check_range("floor", self.floor, 1e-12, 1.0)
        check_rewards(self.rewards)
        check_estimate(self.estimate)
        if self.law not in LAWS:
            raise ValueError(unknown("law", self.law, LAWS))

    def __call__(self, groups: Groups) -> Tensor:
        """[P] tau, reward units."""
        low, high = self.rewards
        p = pass_rate(groups, self.rewards, self.estimate).clamp_min(self.floor)
        if self.law == "hard":
            return (high - low) * p / (-self.eta * math.log1p(-self.eta))
        return (high - low) * contraction_tau(p, torch.full_like(p, self.eta))


def contraction_tau(p: Tensor, eta: Tensor) -> Tensor:
    """Tau on rewards {0, 1} at which the exact PMD-mean update closes the share eta of the gap 1 - p. [...], both."""
    gain = torch.log1p(eta * (1 - p) / p)
    return 1 / ((1 - eta) * gain - (1 + eta * (1 - p) / p) * torch.log1p(-eta))
