"""Temperatures from a budget of movement: every prompt may go the same distance, in KL or in chi-squared."""

from dataclasses import dataclass

import torch
from torch import Tensor

from pmdkit.objectives.options import check_range
from pmdkit.objectives.pass_rates import check_estimate, check_rewards, pass_rate
from pmdkit.objectives.temperature_rates import contraction_tau
from pmdkit.objectives.vocabulary import Groups

HALVINGS = 60  # of an interval of length 1: below the spacing of float64


@dataclass(frozen=True)
class KLBudget:
    r"""The temperature at which the exact PMD-mean update moves every prompt by the same KL divergence.

    $$ \mathrm{KL}(\pi_{new}\,\|\,\pi_{old}) = p\,\rho_+\log\rho_+ + (1-p)\,\rho_-\log\rho_- = B, \quad
       \rho_- = 1-\eta, \quad \rho_+ = 1 + \eta\,\tfrac{1-p}{p} $$

    Source: pmdkit; the ratios are those of Theorem 1 of arXiv:2602.05933 for binary rewards.
    Differs: the paper has no budget. KL rises with eta, so B gives eta, and `Contraction` gives tau.

    Attributes:
        budget: B, nats per step.
        most: eta at most. An easy prompt cannot spend the budget: solving it wholly costs log(1/p) nats.
        floor: pass rates below are treated as this one.
        rewards: (lowest, highest) reward; (-1, 1) for rewards of +-1.
        estimate: of the pass rate from draws, "jeffreys" or "pool": `pass_rate`.

    Good values: 0.1 to 1 nats.
    Watch: the opposite of `Contraction` at hard prompts: eta falls as p does. Ideal, as there. For PMD-mean only.
    """

    budget: float = 0.3
    most: float = 0.99
    floor: float = 1e-3
    rewards: tuple[float, float] = (0.0, 1.0)
    estimate: str = "jeffreys"

    def __post_init__(self) -> None:
        check_range("budget", self.budget, 1e-6)
        check_bounds(self.most, self.floor, self.rewards, self.estimate)

    def __call__(self, groups: Groups) -> Tensor:
        """[P] tau, reward units."""
        p = pass_rate(groups, self.rewards, self.estimate).clamp_min(self.floor)
        low, high = torch.zeros_like(p), torch.full_like(p, self.most)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            spent = kl(p, middle) > self.budget
            low, high = torch.where(spent, low, middle), torch.where(spent, middle, high)
        eta = torch.where(kl(p, torch.full_like(p, self.most)) <= self.budget, self.most, low)
        return (self.rewards[1] - self.rewards[0]) * contraction_tau(p, eta)


@dataclass(frozen=True)
class Chi2Budget:
    r"""The temperature at which the exact PMD-mean update moves every prompt by the same chi-squared divergence.

    $$ \chi^2(\pi_{new}\,\|\,\pi_{old}) = \eta^2\,\tfrac{1-p}{p} = B \quad\Rightarrow\quad
       \eta = \sqrt{B\,\tfrac{p}{1-p}} $$

    Source: pmdkit; from the ratios of Theorem 1 of arXiv:2602.05933 for binary rewards, as in `KLBudget`.
    Differs: the paper has no budget. 1 / (1 + B) is the share of draws that still counts (ESS) when old draws stand for
    the new policy.

    Attributes:
        budget: B, per step.
        most: eta at most.
        floor: pass rates below are treated as this one.
        rewards: (lowest, highest) reward; (-1, 1) for rewards of +-1.
        estimate: of the pass rate from draws, "jeffreys" or "pool": `pass_rate`.

    Good values: 0.3 to 3: an ESS of 0.77 to 0.25.
    Watch: as `KLBudget`, and more cautious still at hard prompts: eta falls with the root of p.
    """

    budget: float = 1.0
    most: float = 0.99
    floor: float = 1e-3
    rewards: tuple[float, float] = (0.0, 1.0)
    estimate: str = "jeffreys"

    def __post_init__(self) -> None:
        check_range("budget", self.budget, 1e-6)
        check_bounds(self.most, self.floor, self.rewards, self.estimate)

    def __call__(self, groups: Groups) -> Tensor:
        """[P] tau, reward units."""
        p = pass_rate(groups, self.rewards, self.estimate).clamp_min(self.floor)
        eta = (self.budget * p / (1 - p)).sqrt().clamp_max(self.most)
        return (self.rewards[1] - self.rewards[0]) * contraction_tau(p, eta)


def kl(p: Tensor, eta: Tensor) -> Tensor:
    """KL(new || old) in nats of an update from pass rate p that closes the share eta < 1 of the gap."""
    gain = eta * (1 - p) / p
    return p * (1 + gain) * torch.log1p(gain) + (1 - p) * (1 - eta) * torch.log1p(-eta)


def check_bounds(most: float, floor: float, rewards: tuple[float, float], estimate: str) -> None:
    """What both budgets have."""
    check_range("most", most, 1e-6, 1 - 1e-6)
    check_range("floor", floor, 1e-12, 1.0)
    check_rewards(rewards)
    check_estimate(estimate)
