"""What the GRPO family shares: the clipped gain, and the advantage in units of the group's spread. No class here."""

import math

import torch
from torch import Tensor

from pmdkit.objectives.baselines import highest_reward, lowest_reward, require_peers, zero_absent
from pmdkit.objectives.vocabulary import Groups, expect, one_if_zero


def clipped_gain(log_ratio: Tensor, advantage: Tensor, clip_low: float, clip_high: float) -> Tensor:
    """min(ratio * A, clip(ratio, 1 - clip_low, 1 + clip_high) * A).

    The minimum bounds the ratio above where A >= 0 and below where A < 0. Bounding the log ratio first is the same
    function without inf * 0 when a ratio overflows.
    """
    low, high = log_bounds(clip_low, clip_high)
    bounded = torch.where(advantage >= 0, log_ratio.clamp_max(high), log_ratio.clamp_min(low))
    return bounded.exp() * advantage


def log_bounds(clip_low: float, clip_high: float) -> tuple[float, float]:
    """(log(1 - clip_low), log(1 + clip_high)); clip_low = 1 is no lower bound."""
    return (math.log1p(-clip_low) if clip_low < 1 else -math.inf), math.log1p(clip_high)


def standardised(groups: Groups, std: str) -> Tensor:
    """[P, G] (reward - mean) / std, exactly 0 in a group of equal rewards.

    Equality is read off the rewards. A small std would not tell: rewards of 0.1 leave rounding in it.

    Args:
        std: "population" divides by n, "sample" by n - 1 (on the full support the two agree), "none" by nothing.
    """
    require_peers(groups)
    lowest = lowest_reward(groups)
    spread = highest_reward(groups) - lowest
    # in units of the spread neither an offset nor the square of a small difference loses digits
    share = (groups.reward - lowest) / one_if_zero(spread)
    deviation = zero_absent(share - expect(share, groups.mass), groups)
    if std == "none":
        return spread * deviation
    variance = expect(deviation**2, groups.mass)
    if std == "sample" and groups.sampled:
        count = groups.present.sum(1, keepdim=True)
        variance = variance * count / (count - 1).clamp_min(1)
    return torch.where(spread > 0, deviation / one_if_zero(variance.sqrt()), 0.0)
