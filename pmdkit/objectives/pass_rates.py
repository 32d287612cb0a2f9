"""Pass rates of prompts as temperature rules see them: exact on the full support, shrunk estimates for draws."""

import math

import torch
from torch import Tensor

from pmdkit.nearest import unknown
from pmdkit.objectives.vocabulary import Groups, expect

ESTIMATES = ("jeffreys", "pool")
STRONGEST = 1e3
"Pseudo-draws of the pool's prior, at most: prompts of one common pass rate would make it infinite."


def pass_rate(groups: Groups, rewards: tuple[float, float], estimate: str = "jeffreys") -> Tensor:
    r"""Mean reward of each prompt as a share of its range, shrunk for draws.

    $$ \hat p = \frac{S + a}{n + a + b} $$

    S is the sum of the n scaled rewards of a group. "jeffreys": a = b = 1/2. "pool": a = s m, b = s (1 - m), with m the
    mean of all groups of the step and s by moments of a beta-binomial, so that prompts which differ little are pulled
    together and prompts which differ much are left alone.

    Shapes: [P], in [0, 1].
    Watch: an estimate sees the own draw, and "pool" all draws of the step.
    """
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
    r"""Mean and strength (pseudo-draws) of the Beta prior that the groups of a step suggest, by moments.

    $$ \mathrm{Var}(S/n) = m(1-m)\Big[\frac1n + \Big(1-\frac1n\Big)\frac{1}{s+1}\Big] $$

    Source: moments of the beta-binomial; groups without a scored response are left out.
    Shapes: rate, draws [P] to two scalars. The mean keeps half a pseudo-success and half a pseudo-failure in the pool,
    so that no prompt gets 0 or 1 from all-wrong or all-right steps.
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


def check_estimate(estimate: str) -> None:
    """One of ESTIMATES."""
    if estimate not in ESTIMATES:
        raise ValueError(unknown("estimate", estimate, ESTIMATES))


def check_rewards(rewards: tuple[float, float]) -> None:
    """Two finite numbers, the lower first."""
    if len(rewards) != 2 or not all(math.isfinite(r) for r in rewards) or rewards[0] >= rewards[1]:
        raise ValueError(f"rewards is {rewards}; expected (lowest, highest), such as (0, 1) or (-1, 1)")
