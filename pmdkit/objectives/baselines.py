"""Baselines: the peers of a draw, or the expectation on the full support; and standardised rewards."""

import torch
from torch import Tensor

from pmdkit.objectives.batch import Groups, expect, log_expect_exp, one_if_zero


def require_peers(groups: Groups) -> None:
    """Refuse draws of one response per prompt, which a group baseline has nothing to compare with."""
    if groups.sampled and groups.reward.shape[1] < 2:
        raise ValueError(
            "a group baseline got 1 response per prompt; expected at least 2: raise group, or use the full support"
        )


def mean_baseline(groups: Groups) -> Tensor:
    """[P, G] mean reward of the whole group, the row's own reward included (Kimi K1.5)."""
    require_peers(groups)
    lowest = lowest_reward(groups)
    return (lowest + expect(groups.reward - lowest, groups.mass)).expand_as(groups.reward)


def minus_mean(groups: Groups, baseline: str) -> Tensor:
    """[P, G] reward minus the mean reward: "loo" leaves a response's own draw out, "mean" keeps it in."""
    mean = peer_mean(groups) if baseline == "loo" else mean_baseline(groups)
    return zero_absent(groups.reward - mean, groups)


def peer_mean(groups: Groups) -> Tensor:
    """[P, G] mean reward of the other draws; on the full support, E_{pi_old}[r]."""
    if not groups.sampled:
        return mean_baseline(groups)
    require_peers(groups)
    lowest = lowest_reward(groups)
    weighted = torch.where(groups.present, groups.mass * (groups.reward - lowest), 0.0)
    return lowest + (weighted.sum(1, keepdim=True) - weighted) / mass_of_others(groups)


def peer_log_mean_exp(groups: Groups, tau: Tensor) -> Tensor:
    """[P, G] log of the mean of exp(r / tau) over the other draws; on the full support, log Z.

    The sum over the others combines the log-sum-exp of the rows before and after a row. It is never the full sum minus
    the row's own term: in floating point that difference vanishes for the best response of a group.

    Args:
        tau: [P] temperatures, reward units.
    """
    scaled = groups.reward / tau[:, None]
    if not groups.sampled:
        return log_expect_exp(scaled, groups.mass).expand_as(scaled)
    require_peers(groups)
    log_mass = torch.where(groups.present, groups.mass, 1.0).log()
    terms = torch.where(groups.present, scaled + log_mass, -torch.inf)
    nothing = terms.new_full((len(terms), 1), -torch.inf)
    before = torch.cat([nothing, terms.logcumsumexp(1)[:, :-1]], 1)
    after = torch.cat([terms.flip(1).logcumsumexp(1).flip(1)[:, 1:], nothing], 1)
    log_mean = torch.logaddexp(before, after) - mass_of_others(groups).log()
    return torch.where(groups.scored[:, None], log_mean, 0.0)


def minus_log_partition(groups: Groups, tau: Tensor, baseline: str) -> Tensor:
    """[P, G] reward minus tau log of the mean of exp(r / tau): "loo" leaves a response's own draw out, "mean" keeps it.

    Args:
        tau: [P] temperatures, reward units.
    """
    if baseline == "loo":
        return zero_absent(groups.reward - tau[:, None] * peer_log_mean_exp(groups, tau), groups)
    require_peers(groups)
    # relative to the lowest reward, so that equal rewards leave no rounding of r / tau
    above = groups.reward - lowest_reward(groups)
    scaled = torch.where(groups.present, above, 0.0) / tau[:, None]
    return zero_absent(above - tau[:, None] * log_expect_exp(scaled, groups.mass), groups)


def standardised(groups: Groups, std: str, over_batch: bool = False) -> Tensor:
    """[P, G] (reward - mean) / std, exactly 0 in a group of equal rewards.

    Equality is tested on the rewards, because the std of equal rewards of 0.1 rounds above 0.

    Args:
        groups: rewards and masses, [P, G].
        std: "population" divides by n, "sample" by n - 1 (on the full support the two agree), "none" not at all. "mean"
            takes the mean reward in place of a std, and gives 0 where that is not positive.
        over_batch: one std for all prompts, of the deviations from each group's mean; every prompt counts equally.
    """
    require_peers(groups)
    lowest = lowest_reward(groups)
    spread = highest_reward(groups) - lowest
    if over_batch:
        spread = spread.amax(0, keepdim=True)  # one unit for all, since deviations of several groups are compared
    # divide by the spread first: offsets and squares of small differences would lose digits
    share = (groups.reward - lowest) / one_if_zero(spread)
    deviation = zero_absent(share - expect(share, groups.mass), groups)
    if std == "none":
        return spread * deviation
    if std == "mean":
        mean = lowest + spread * expect(share, groups.mass)
        return torch.where(mean > 0, spread * deviation / one_if_zero(mean), 0.0)
    variance = expect(deviation**2, groups.mass)
    count = (groups.present & groups.scored[:, None]).sum(1, keepdim=True)
    if over_batch:
        variance, count = variance.sum() / groups.scored.sum().clamp_min(1), count.sum()
    if std == "sample" and groups.sampled:
        variance = variance * count / (count - 1).clamp_min(1)
    return torch.where(spread > 0, deviation / one_if_zero(variance.sqrt()), 0.0)


def as_one_group(groups: Groups) -> Groups:
    """[1, P * G] the batch as a single group; every prompt with a response counts equally."""
    mass = groups.mass / one_if_zero(groups.mass.sum(1, keepdim=True))
    return Groups(groups.reward.reshape(1, -1), mass.reshape(1, -1), groups.sampled)


def zero_absent(advantage: Tensor, groups: Groups) -> Tensor:
    """The advantage, set to 0 for absent rows and for groups without a peer to compare with."""
    return torch.where(groups.present & groups.scored[:, None], advantage, 0.0)


def lowest_reward(groups: Groups) -> Tensor:
    """[P, 1] lowest reward present. Means are taken relative to it, so that equal rewards have advantage exactly 0."""
    lowest = torch.where(groups.present, groups.reward, torch.inf).amin(1, keepdim=True)
    return torch.where(torch.isfinite(lowest), lowest, 0.0)


def highest_reward(groups: Groups) -> Tensor:
    """[P, 1] highest reward present."""
    highest = torch.where(groups.present, groups.reward, -torch.inf).amax(1, keepdim=True)
    return torch.where(torch.isfinite(highest), highest, 0.0)


def rewards_differ(groups: Groups) -> Tensor:
    """[P] whether a group has two different rewards."""
    return (highest_reward(groups) > lowest_reward(groups))[:, 0]


def mass_of_others(groups: Groups) -> Tensor:
    """[P, G] mass of the other rows of the group, or 1 if it is 0."""
    return one_if_zero(groups.mass.sum(1, keepdim=True) - groups.mass)
