"""Adaptive temperatures: rules that give every prompt its own tau from the rewards of its group.

A rule is any callable from Groups to [P]; these are frozen dataclasses, so that their fields are options.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from pmdkit.from_path import class_from_path, is_path
from pmdkit.nearest import unknown
from pmdkit.objectives.options import check_options, check_range
from pmdkit.objectives.vocabulary import Groups, Tau, expect


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

    Good values: scale 0.14 (eta = 0.999) to 2.9 (eta = 0.5); floor 0.1 with 16 draws, which cannot see less.
    Watch: for PMD-mean. PMD-part's partition grows with e^{1/tau} at a hard prompt, and a rule that sees the own draw
    biases its first step.
    """

    scale: float = 0.14
    floor: float = 0.1
    rewards: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        check_range("scale", self.scale, 1e-12)
        check_range("floor", self.floor, 1e-12, 1.0)
        check_rewards(self.rewards)

    def __call__(self, groups: Groups) -> Tensor:
        """[P] tau, reward units."""
        low, high = self.rewards
        return self.scale * (high - low) * pass_rate(groups, self.rewards).clamp_min(self.floor)


@dataclass(frozen=True)
class Contraction:
    r"""The temperature at which the exact PMD-mean update closes the same share eta of every prompt's gap to 1.

    $$ \tfrac{1}{\tau} = \rho_-\log\rho_+ - \rho_+\log\rho_-, \quad \rho_- = 1-\eta, \quad
       \rho_+ = 1 + \eta\,\tfrac{1-p}{p}, \quad 1 - p_{t+1} = (1-\eta)(1-p_t) $$

    Source: Theorem 1 of arXiv:2602.05933 for binary rewards, solved for tau: given eta, the two stationarity
    conditions are linear in 1/tau and lambda/tau^2.
    Differs: the paper goes from tau to eta. For p -> 0 the rule is tau = p / (eta log(1 / (1 - eta))), the rule
    PassRate without its floor.

    Attributes:
        eta: share of the gap to close in one exact update, in (0, 1).
        floor: pass rates below are treated as this one.
        rewards: (lowest, highest) reward; (-1, 1) for rewards of +-1.

    Good values: eta = 0.5 to 0.9.
    Watch: ideal, for the exact update of one prompt with binary rewards; draws, shared weights and few gradient steps
    close less. For PMD-mean only.
    """

    eta: float = 0.5
    floor: float = 1e-3
    rewards: tuple[float, float] = (0.0, 1.0)

    def __post_init__(self) -> None:
        check_range("eta", self.eta, 1e-6, 1 - 1e-6)
        check_range("floor", self.floor, 1e-12, 1.0)
        check_rewards(self.rewards)

    def __call__(self, groups: Groups) -> Tensor:
        """[P] tau, reward units."""
        low, high = self.rewards
        p = pass_rate(groups, self.rewards).clamp_min(self.floor)
        log_negative = math.log1p(-self.eta)
        positive = 1 + self.eta * (1 - p) / p
        return (high - low) / ((1 - self.eta) * positive.log() - positive * log_negative)


TAUS: dict[str, Callable[..., Callable[[Groups], Tensor]]] = {
    "pass-rate": PassRate,
    "contraction": Contraction,
}


def make_tau(spec: Any) -> Tau:
    """A temperature from a configuration.

    Args:
        spec: a number; a callable; a rule's name; or {"rule": name, option: value, ...}, where the name is a key of
            TAUS or a user's own frozen dataclass, "my.py:MyRule".
    """
    if isinstance(spec, str):
        spec = {"rule": spec}
    if not isinstance(spec, Mapping):
        return spec
    options = dict(spec)
    name = options.pop("rule", None)
    if not isinstance(name, str):
        raise ValueError(f"tau is {dict(spec)}; expected the name of a rule under the key 'rule': {', '.join(TAUS)}")
    if not is_path(name) and name not in TAUS:
        raise ValueError(f"{unknown('tau rule', name, TAUS)}, or your own as file.py:Class")
    factory = class_from_path(name) if is_path(name) else TAUS[name]
    check_options(name, factory, options)
    # TOML and JSON have lists, a frozen rule holds tuples
    return factory(**{key: tuple(value) if isinstance(value, list) else value for key, value in options.items()})


def pass_rate(groups: Groups, rewards: tuple[float, float]) -> Tensor:
    """[P] mean reward as a share of its range: exact on the full support, (successes + 1/2) / (draws + 1) for draws."""
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
    draws = groups.present.sum(1)
    return (rate * draws + 0.5) / (draws + 1)


def check_rewards(rewards: tuple[float, float]) -> None:
    """Two finite numbers, the lower first."""
    if len(rewards) != 2 or not all(math.isfinite(r) for r in rewards) or rewards[0] >= rewards[1]:
        raise ValueError(f"rewards is {rewards}; expected (lowest, highest), such as (0, 1) or (-1, 1)")
