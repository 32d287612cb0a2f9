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
    actions = pi.shape[-1]
    if actions <= 2 or not len(reward) or not two_valued(reward[:1]):
        return None
    high, low = reward.max(1), reward.min(1)
    best, mass = np.empty(reward.shape), np.empty((len(reward), 2))
    for part in blocks(reward):
        top = reward[part] == high[part, None]
        if not (top | (reward[part] == low[part, None])).all():
            return None
        best[part] = top
        mass[part, 0] = np.vecdot(pi[part], best[part])
    mass[:, 1] = pi.sum(1) - mass[:, 0]
    rare = mass[:, 1] < mass[:, 0]  # a difference loses the digits of the smaller part
    mass[rare, 1] = np.vecdot(pi[rare], 1 - best[rare])
    return Pairs(high, low, best, mass)


def two_valued(reward: Array) -> bool:
    """Whether every row of [S, A] holds at most two values."""
    return bool(((reward == reward.max(1, keepdims=True)) | (reward == reward.min(1, keepdims=True))).all())


def spread(pi: Array, best: Array, log_ratio: Array) -> tuple[Array, Array]:
    """Log-ratios and new probabilities, [S, A], from the log-ratios [S, 2] of the high and the low reward.

    `best` is used up: the log-ratios are written over it.
    """
    probs = np.empty_like(best)
    right, wrong = log_ratio[:, :1], log_ratio[:, 1:]
    more, less = np.exp(np.minimum(right, 709.0)), np.exp(np.minimum(wrong, 709.0))  # beyond: actions without mass
    for part in blocks(best):
        here, new = best[part], probs[part]
        np.multiply(here, (more - less)[part], out=new)  # no digit is lost: less <= 1 <= more
        new += less[part]
        new *= pi[part]
        here *= (right - wrong)[part]
        here += wrong[part]
    lost = np.abs(wrong + (right - wrong) - right) > 4e-16 * np.abs(
        right
    )  # beside a large one a small one loses digits
    rows = lost[:, 0]
    if rows.any():
        best[rows] = np.where(best[rows] == wrong[rows], wrong[rows], right[rows])
    return best, probs


def blocks(rows: Array) -> list[slice]:
    """Slices of so many rows that a few arrays of them stay in the cache."""
    step = max(1, BLOCK // rows.shape[1])
    return [slice(first, first + step) for first in range(0, len(rows), step)]
