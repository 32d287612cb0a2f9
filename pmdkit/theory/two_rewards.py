"""The fast twin of lambert.py where a policy sees two rewards only, as under any verifier: few passes, no exponentials.

The update is the same for all actions of one reward, so a row enters through the two masses alone: a problem of two
actions is solved and spread. What is left is reading the arrays, in blocks that stay in the cache between passes.
"""

from dataclasses import dataclass

import numpy as np

from pmdkit.theory.inputs import Array

BLOCK = 32_768  # entries


@dataclass(frozen=True)
class Pairs:
    """Rows of two rewards.

    Attributes:
        high, low: [S] the rewards; equal where a row has one.
        best: [S, A] 1.0 on the high reward, 0.0 on the low one.
        mass: [S, 2] probability of the high and of the low reward.
    """

    high: Array
    low: Array
    best: Array
    mass: Array


def pairs(pi: Array, reward: Array) -> Pairs | None:
    """Two rewards per row and their masses; None where some row holds a third. The first row settles most cases.

    Args:
        pi, reward: [S, A], checked.
    """
    if reward.shape[1] <= 2 or not len(reward) or not two_valued(reward[:1]):
        return None
    if reward[0].min() == 0 and reward[0].max() == 1:
        column = (len(reward), 1)
        found = masses(pi, reward, np.broadcast_to(1.0, column), np.broadcast_to(0.0, column), verdicts=True)
        if found is not None:
            return found
    return masses(pi, reward, reward.max(1, keepdims=True), reward.min(1, keepdims=True))


def masses(pi: Array, reward: Array, high: Array, low: Array, verdicts: bool = False) -> Pairs | None:
    """The pairs of these rewards, [S, 1]; None where a row holds another. `verdicts`: 0 and 1 are `best` themselves."""
    best, mass = reward if verdicts else np.empty(reward.shape), np.empty((len(reward), 2))
    for part in blocks(reward):
        old, values, here = pi[part], reward[part], best[part]
        top, other = values == high[part], values == low[part]
        other |= top
        if not other.all():
            return None
        if not verdicts:
            here[...] = top
        right, wrong = mass[part].T
        right[...] = np.vecdot(old, here)
        np.subtract(old.sum(1), right, out=wrong)
        rare = wrong < right  # a difference loses the digits of the smaller part
        if rare.any():
            wrong[rare] = np.vecdot(old, 1 - here)[rare]
    return Pairs(high[:, 0], low[:, 0], best, mass)


def two_valued(reward: Array) -> bool:
    """Whether every row of [S, A] holds at most two values."""
    return bool(((reward == reward.max(1, keepdims=True)) | (reward == reward.min(1, keepdims=True))).all())


def spread(pi: Array, best: Array, log_ratio: Array) -> tuple[Array, Array]:
    """Log-ratios and new probabilities, [S, A], from the log-ratios [S, 2] of the high and the low reward."""
    wide, probs = np.empty(best.shape), np.empty(best.shape)
    right, wrong = log_ratio[:, :1], log_ratio[:, 1:]
    more, less = np.exp(np.minimum(right, 709.0)), np.exp(np.minimum(wrong, 709.0))  # beyond: actions without mass
    gap = more - less  # no digit of a ratio is lost: less <= 1 <= more
    for part in blocks(best):
        here, new = wide[part], probs[part]
        np.multiply(best[part], gap[part], out=new)
        new += less[part]
        new *= pi[part]
        np.multiply(best[part], 1e300, out=here)
        here += wrong[part]
        np.minimum(here, right[part], out=here)  # wrong or right to the last digit: wrong <= right < 1e300
    return wide, probs


def blocks(rows: Array) -> list[slice]:
    """Slices of so many rows that a few arrays of them stay in the cache."""
    step = max(1, BLOCK // rows.shape[1])
    return [slice(first, first + step) for first in range(0, len(rows), step)]
