"""Temperatures: a number, or a rule that sets the tau of each prompt from the rewards of its group.

A rule is any callable from Groups to [P]. The rules here are frozen dataclasses whose fields are their options.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

import torch
from torch import Tensor

from pmdkit.errors import did_you_mean, unknown
from pmdkit.objectives.batch import Groups, Tau, expect
from pmdkit.options import Checked, Range, check_options
from pmdkit.plugins import class_from_path, is_path

HALVINGS = 60  # bisections of an interval of length 1, down to the spacing of float64
STRONGEST = 1e3
"Most pseudo-draws of the pool's prior: if all prompts had the same pass rate, it would be infinite."


@dataclass(frozen=True)
class LowestAndHighest:
    """Two finite numbers, the lower first."""

    def check(self, name: str, value: tuple[float, ...], whole: bool = False) -> None:
        """Require such a pair."""
        if len(value) != 2 or not all(math.isfinite(r) for r in value) or value[0] >= value[1]:
            raise ValueError(f"{name} is {value}; expected (lowest, highest), such as (0, 1) or (-1, 1)")


Floor = Annotated[float, Range(1e-12, 1)]
Inside = Annotated[float, Range(1e-6, 1 - 1e-6)]
Rewards = Annotated[tuple[float, float], LowestAndHighest()]
Estimate = Literal["jeffreys", "pool"]


@dataclass(frozen=True)
class PassRate(Checked):
    r"""A temperature proportional to the pass rate: hard prompts move further, easy ones stay close.

    $$ \tau(x) = c\,(r_{max} - r_{min})\,\max(\hat p(x), p_{floor}) $$

    Source: suggested, not tested, in arXiv:2602.05933 (after Lemma pmdmean_refined).
    Differs: the floor, and the smoothed estimate (successes + 1/2) / (draws + 1); on the full support p is exact.

    Attributes:
        scale: c. For rare successes c = 1 / (eta log(1 / (1 - eta))) keeps the ideal contraction at eta.
        floor: pass rates below this are raised to it.
        rewards: (lowest, highest) reward; (-1, 1) for rewards of +-1.
        estimate: how draws give the pass rate, "jeffreys" or "pool"; see `pass_rate`.

    Good values: scale 0.14 (eta = 0.999) to 2.9 (eta = 0.5); floor 0.1 with 16 draws, which cannot resolve less.
    Watch: use it with PMD-mean. PMD-part's partition grows with e^{1/tau} at a hard prompt, and a rule that sees a
    response's own draw biases its first step.
    """

    scale: Annotated[float, Range(1e-12)] = 0.14
    floor: Floor = 0.1
    rewards: Rewards = (0.0, 1.0)
    estimate: Estimate = "jeffreys"

    def __call__(self, groups: Groups) -> Tensor:
        """[P] tau, reward units."""
        low, high = self.rewards
        return self.scale * (high - low) * pass_rate(groups, self.rewards, self.estimate).clamp_min(self.floor)


@dataclass(frozen=True)
class Contraction(Checked):
    r"""The temperature at which the exact PMD-mean update closes the same share eta of every prompt's gap to 1.

    $$ \tfrac{1}{\tau} = \rho_-\log\rho_+ - \rho_+\log\rho_-, \quad \rho_- = 1-\eta, \quad
       \rho_+ = 1 + \eta\,\tfrac{1-p}{p}, \quad 1 - p_{t+1} = (1-\eta)(1-p_t) $$

    Source: Theorem 1 of arXiv:2602.05933 for binary rewards, solved for tau: given eta, the two stationarity
    conditions are linear in 1/tau and lambda/tau^2.
    Differs: the paper goes from tau to eta. Its limit for p -> 0 is tau = p / (eta log(1 / (1 - eta))), the rule
    PassRate without its floor.

    Attributes:
        eta: share of the gap to close in one exact update, in (0, 1).
        floor: pass rates below this are raised to it.
        rewards: (lowest, highest) reward; (-1, 1) for rewards of +-1.
        estimate: how draws give the pass rate, "jeffreys" or "pool"; see `pass_rate`.

    Good values: eta = 0.5 to 0.9.
    Watch: eta is ideal: it holds for the exact update of one prompt with binary rewards. Draws, shared weights and few
    gradient steps close less of the gap. For PMD-mean only.
    """

    eta: Inside = 0.5
    floor: Floor = 1e-3
    rewards: Rewards = (0.0, 1.0)
    estimate: Estimate = "jeffreys"

    def __call__(self, groups: Groups) -> Tensor:
        """[P] tau, reward units."""
        low, high = self.rewards
        p = pass_rate(groups, self.rewards, self.estimate).clamp_min(self.floor)
        return (high - low) * contraction_tau(p, torch.full_like(p, self.eta))


@dataclass(frozen=True)
class KLBudget(Checked):
    r"""The temperature at which the exact update moves every prompt by the same KL divergence.

    $$ \mathrm{KL}(\pi_{new}\,\|\,\pi_{old}) = p\,\rho_+\log\rho_+ + (1-p)\,\rho_-\log\rho_- = B, \quad
       \rho_- = 1-\eta, \quad \rho_+ = 1 + \eta\,\tfrac{1-p}{p} $$

    Source: pmdkit; the ratios are those of Theorem 1 of arXiv:2602.05933 for binary rewards.
    Differs: the paper has no budget. KL rises with eta, so B gives eta. Any update on binary rewards has these ratios;
    which tau leads to eta depends on the method. For PMD-mean it is that of `Contraction`, and for PMD-part
    tau = 1 / (log rho_+ - log rho_-), since its log-ratios differ by 1/tau.

    Attributes:
        budget: B, nats per step.
        most: upper bound on eta. An easy prompt cannot spend the budget: solving it fully costs log(1/p) nats.
        floor: pass rates below this are raised to it.
        rewards: (lowest, highest) reward; (-1, 1) for rewards of +-1.
        estimate: how draws give the pass rate, "jeffreys" or "pool"; see `pass_rate`.
        method: the method that tau is for, "pmd-mean" or "pmd-part".

    Good values: 0.1 to 1 nats.
    Watch: the opposite of `Contraction` at hard prompts: eta falls with p. As there, the law is for the exact update.
    """

    budget: Annotated[float, Range(1e-6)] = 0.3
    most: Inside = 0.99
    floor: Floor = 1e-3
    rewards: Rewards = (0.0, 1.0)
    estimate: Estimate = "jeffreys"
    method: Literal["pmd-mean", "pmd-part"] = "pmd-mean"

    def __call__(self, groups: Groups) -> Tensor:
        """[P] tau, reward units."""
        p = pass_rate(groups, self.rewards, self.estimate).clamp_min(self.floor)
        low, high = torch.zeros_like(p), torch.full_like(p, self.most)
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            spent = kl(p, middle) > self.budget
            low, high = torch.where(spent, low, middle), torch.where(spent, middle, high)
        eta = torch.where(kl(p, torch.full_like(p, self.most)) <= self.budget, self.most, low)
        return (self.rewards[1] - self.rewards[0]) * UPDATES[self.method](p, eta)


@dataclass(frozen=True)
class Chi2Budget(Checked):
    r"""The temperature at which the exact PMD-mean update moves every prompt by the same chi-squared divergence.

    $$ \chi^2(\pi_{new}\,\|\,\pi_{old}) = \eta^2\,\tfrac{1-p}{p} = B \quad\Rightarrow\quad
       \eta = \sqrt{B\,\tfrac{p}{1-p}} $$

    Source: pmdkit; from the ratios of Theorem 1 of arXiv:2602.05933 for binary rewards, as in `KLBudget`.
    Differs: the paper has no budget. 1 / (1 + B) is the effective sample size (ESS), as a share, of old draws that are
    reweighted to the new policy.

    Attributes:
        budget: B, per step.
        most: upper bound on eta.
        floor: pass rates below this are raised to it.
        rewards: (lowest, highest) reward; (-1, 1) for rewards of +-1.
        estimate: how draws give the pass rate, "jeffreys" or "pool"; see `pass_rate`.

    Good values: 0.3 to 3: an ESS of 0.77 to 0.25.
    Watch: as for `KLBudget`, but even more cautious at hard prompts: eta falls with the square root of p.
    """

    budget: Annotated[float, Range(1e-6)] = 1.0
    most: Inside = 0.99
    floor: Floor = 1e-3
    rewards: Rewards = (0.0, 1.0)
    estimate: Estimate = "jeffreys"

    def __call__(self, groups: Groups) -> Tensor:
        """[P] tau, reward units."""
        p = pass_rate(groups, self.rewards, self.estimate).clamp_min(self.floor)
        eta = (self.budget * p / (1 - p)).sqrt().clamp_max(self.most)
        return (self.rewards[1] - self.rewards[0]) * contraction_tau(p, eta)


TAUS: dict[str, Callable[..., Callable[[Groups], Tensor]]] = {
    "pass-rate": PassRate,
    "contraction": Contraction,
    "kl-budget": KLBudget,
    "chi2-budget": Chi2Budget,
}


def make_tau(spec: Any) -> Tau:
    """Make a temperature from a configuration: a number, or a rule of TAUS as for `make_rule`."""
    tau: Tau = make_rule("tau", spec, TAUS)
    return tau


def make_rule(what: str, spec: Any, rules: Mapping[str, Any]) -> Any:
    """Make an option that may depend on the rewards of a group, from a configuration.

    Args:
        what: the option, for errors.
        spec: a number; a callable; a rule's name; or {"rule": name, option: value, ...}, where the name is a key of
            `rules` or a user's own frozen dataclass, "my.py:MyRule".
        rules: by name.
    """
    if isinstance(spec, str):
        spec = {"rule": spec}
    if not isinstance(spec, Mapping):
        return spec
    options = dict(spec)
    name = options.pop("rule", None)
    if not isinstance(name, str):
        known = ", ".join(rules)
        raise ValueError(f"{what} is {dict(spec)}; expected the name of a rule under the key 'rule': {known}")
    if not is_path(name) and name not in rules:
        close = did_you_mean(name, rules)
        hint = f"did you mean '{close}'? " if close else ""
        known = f"{', '.join(sorted(rules))}, or your own as file.py:Class"
        raise ValueError(f"unknown {what} rule '{name[:80]}'; {hint}Expected a number such as 0.05, or a rule: {known}")
    factory = class_from_path(name) if is_path(name) else rules[name]
    check_options(name, factory, options)
    # TOML and JSON have lists, a frozen rule holds tuples
    return factory(**{key: tuple(value) if isinstance(value, list) else value for key, value in options.items()})


def pass_rate(groups: Groups, rewards: tuple[float, float], estimate: str = "jeffreys") -> Tensor:
    r"""Mean reward of each prompt as a share of the reward range; shrunk if it comes from draws.

    $$ \hat p = \frac{S + a}{n + a + b} $$

    S is the sum of the n scaled rewards of a group. "jeffreys": a = b = 1/2. "pool": a = s m, b = s (1 - m), with m the
    mean of all groups of the step and s fitted to the moments of a beta-binomial, so that prompts that differ little
    are pulled together and prompts that differ much are left alone.

    Shapes: [P], in [0, 1]; 1/2 or m without a scored draw. ValueError for another estimate or a reward out of range.
    Watch: the estimate depends on a response's own draw, and with "pool" on all draws of the step.
    """
    if estimate not in get_args(Estimate):
        raise ValueError(unknown("estimate", estimate, get_args(Estimate)))
    low, high = rewards
    present = groups.reward[groups.present]
    if bool(((present < low) | (present > high)).any()):
        raise ValueError(
            f"rewards go from {float(present.min()):g} to {float(present.max()):g}; expected {low:g} to {high:g}: "
            "set the rule's `rewards` to (lowest, highest), such as (-1, 1)"
        )
    rate = expect((groups.reward - low) / (high - low), groups.mass)[:, 0]
    if not groups.sampled:
        return rate
    draws = groups.present.sum(1).to(rate.dtype)
    if estimate == "jeffreys":
        return (rate * draws + 0.5) / (draws + 1)
    mean, strength = pool(rate, draws)
    return (rate * draws + strength * mean) / (draws + strength)


def pool(rate: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    r"""Mean and strength (pseudo-draws) of the Beta prior for the groups of a step, fitted by moments.

    $$ \mathrm{Var}(S/n) = m(1-m)\Big[\frac1n + \Big(1-\frac1n\Big)\frac{1}{s+1}\Big] $$

    Source: moments of the beta-binomial; groups without a scored response are left out.
    Shapes: rate, draws [P] to two scalars. The mean includes half a pseudo-success and half a pseudo-failure, so that a
    step with all responses wrong or all right gives no prompt a rate of 0 or 1.
    """
    known = draws > 0
    rate, draws = rate[known], draws[known]
    total = draws.sum()
    mean = (rate @ draws + 0.5) / (total + 1)
    if len(rate) < 2:
        return mean, torch.ones_like(mean)
    spread = mean * (1 - mean)
    size = draws.mean()
    between = ((rate - rate.mean()).square().sum() / (len(rate) - 1) / spread - 1 / size) / (1 - 1 / size).clamp_min(
        0.1
    )
    strength = 1 / between.clamp_min(1 / (STRONGEST + 1)) - 1
    return mean, strength.clamp(1.0, STRONGEST)


def contraction_tau(p: Tensor, eta: Tensor) -> Tensor:
    """Tau on rewards {0, 1} at which the exact PMD-mean update closes the share eta of the gap 1 - p; both [...]."""
    gain = torch.log1p(eta * (1 - p) / p)
    return 1 / ((1 - eta) * gain - (1 + eta * (1 - p) / p) * torch.log1p(-eta))


def partition_tau(p: Tensor, eta: Tensor) -> Tensor:
    """Tau on rewards {0, 1} at which the exact PMD-part update closes the share eta of the gap 1 - p; both [...]."""
    return 1 / (torch.log1p(eta * (1 - p) / p) - torch.log1p(-eta))


UPDATES = {"pmd-mean": contraction_tau, "pmd-part": partition_tau}


def kl(p: Tensor, eta: Tensor) -> Tensor:
    """KL(new || old) in nats of an update from pass rate p that closes the share eta < 1 of the gap."""
    gain = eta * (1 - p) / p
    return p * (1 + gain) * torch.log1p(gain) + (1 - p) * (1 - eta) * torch.log1p(-eta)
