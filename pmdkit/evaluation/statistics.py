"""avg@k, pass@k and maj@k with their intervals, from draws that are graded already. NumPy; who draws is elsewhere.

Shapes: P problems, n = m k draws on each, in m blocks of k.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln

Array = NDArray[np.float64]

RESAMPLES = 2000
TAIL = 0.025  # on either side of a 95 % interval


@dataclass(frozen=True)
class Draws:
    """Graded draws.

    Attributes:
        right: [P, n] 1 for a right draw, 0 for a wrong one.
        answer: [P, n] integers, the same where two draws on a problem say the same.
        exhaustive: the P problems are all there are, not a sample of them.
    """

    right: Array
    answer: NDArray[np.int64]
    exhaustive: bool = False


@dataclass(frozen=True)
class Estimate:
    """A share between 0 and 1 with its 95 % interval."""

    value: float
    low: float
    high: float


def evaluate(draws: Draws, k: int, rng: np.random.Generator) -> dict[str, Estimate]:
    r"""`avg_at_k`, `pass_at_k` and `maj_at_k` with 95 % intervals.

    avg@k is the share of right draws. pass@k is the chance that at least one of k draws is right,
    \(1 - \binom{n - c}{k} / \binom{n}{k}\) with c of n right. maj@k is the chance that the most frequent of k answers
    is right; answers that tie share the vote.

    Source: arXiv:2107.03374 (pass@k, unbiased for every n >= k).
    Differs: maj@k is the mean over the m blocks, which is unbiased too.

    The interval is a percentile bootstrap. Where problems are a sample, whole problems are drawn again, each with its
    draws: the spread between problems holds the noise of the draws on them already, and drawing those again would
    count it twice. Where the problems are all there are, blocks are drawn again within each problem. Where every value
    is 0 or every value is 1 a bootstrap sees no spread; the interval is then the exact one of u equal outcomes,
    u problems or blocks: from 0.025^(1/u) to 1.

    Args:
        draws: [P, n], n a multiple of k.
        k: draws that count as one attempt.
        rng: of the bootstrap.
    """
    problems, given = draws.right.shape
    if k < 1:
        raise ValueError(f"k is {k}; expected an integer >= 1, the draws of one attempt")
    if given % k or not given:
        raise ValueError(f"there are {given} draws on each problem; expected a multiple of k = {k}")
    blocks = draws.right.reshape(problems, -1, k)
    votes = majority(draws.right.reshape(-1, k), draws.answer.reshape(-1, k)).reshape(problems, -1)
    tables = {
        "avg_at_k": (draws.right.mean(1), blocks.mean(2)),
        "pass_at_k": (pass_at_k(given, draws.right.sum(1), k), blocks.max(2)),
        "maj_at_k": (votes.mean(1), votes),
    }
    return {name: interval(*table, draws.exhaustive, rng) for name, table in tables.items()}


def pass_at_k(draws: int, right: Array, k: int) -> Array:
    """[P] chance that k of the draws, taken without replacement, hold a right one; `right` [P] of them are right."""
    wrong = draws - right
    none = np.exp(choose(np.maximum(wrong, k), k) - choose(np.asarray(float(draws)), k))
    return np.where(wrong < k, 1.0, 1.0 - none)


def majority(right: Array, answer: NDArray[np.int64]) -> Array:
    """[M] share of right votes among those for the most frequent answer of each row of [M, k]; ties are averaged."""
    order = answer.argsort(axis=1, kind="stable")
    answer, right = np.take_along_axis(answer, order, 1), np.take_along_axis(right, order, 1)
    begins = np.ones(answer.shape, dtype=bool)
    begins[:, 1:] = answer[:, 1:] != answer[:, :-1]
    run = begins.cumsum() - 1  # one number per row and answer
    count = np.bincount(run)[run].reshape(answer.shape)
    top = count == count.max(axis=1, keepdims=True)
    share: Array = (top * right).sum(1) / top.sum(1)  # answers that tie have equally many votes
    return share


def interval(value: Array, blocks: Array, exhaustive: bool, rng: np.random.Generator) -> Estimate:
    """The mean of `value` [P], and its interval; `blocks` [P, m] is a value of the same mean for every block."""
    centre = float(value.mean())
    problems, count = blocks.shape
    if blocks.min() == blocks.max() and centre in (0.0, 1.0):
        units = problems * (count if exhaustive else 1)
        edge = TAIL ** (1 / units)
        return Estimate(centre, edge, 1.0) if centre else Estimate(centre, 0.0, 1 - edge)
    if exhaustive:
        means = np.zeros(RESAMPLES)
        for row in blocks:
            means += rng.choice(row, size=(RESAMPLES, count)).mean(1) / problems
        means += centre - blocks.mean()
    else:
        times = rng.multinomial(problems, np.full(problems, 1 / problems), RESAMPLES)
        means = times @ value / problems
    low, high = np.clip(np.quantile(means, (TAIL, 1 - TAIL)), 0.0, 1.0)
    return Estimate(centre, float(low), float(high))


def choose(n: Array, k: int) -> Array:
    """Logarithm of the binomial coefficient: its size goes beyond float64 at a few hundred draws."""
    result: Array = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return result
