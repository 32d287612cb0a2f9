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

    Where problems are a sample, the interval is a percentile bootstrap over problems, each with its draws: the spread
    between problems holds the noise of the draws on them already, and drawing those again would count it twice. Where
    the problems are all there are, only the draws vary: the interval is 1.96 standard errors on either side, from the
    spread of the m blocks within each problem. Where every block is 0 or every block is 1 neither sees a spread; the
    interval is then the exact one of u equal outcomes, u problems or blocks: from 0.025^(1/u) to 1.

    Args:
        draws: [P, n], n a multiple of k.
        k: draws that count as one attempt.
        rng: of the bootstrap.
    """
    problems, given = draws.right.shape
    if k < 1:
        raise ValueError(f"k is {k}; expected an integer >= 1, the draws of one attempt")
    least = 2 * k if draws.exhaustive else k
    if given % k or given < least:
        raise ValueError(f"there are {given} draws on each problem; expected a multiple of k = {k}, at least {least}")
    right = draws.right.reshape(problems, -1, k)
    count = right.sum((1, 2))
    votes = majority(draws.right.reshape(-1, k), draws.answer.reshape(-1, k)).reshape(problems, -1)
    tables = {
        "avg_at_k": (count / given, right.mean(2)),
        "pass_at_k": (pass_at_k(given, count, k), right.max(2)),
        "maj_at_k": (votes.mean(1), votes),
    }
    times = rng.multinomial(problems, np.full(problems, 1 / problems), RESAMPLES) / problems
    return {name: interval(*table, None if draws.exhaustive else times) for name, table in tables.items()}


def pass_at_k(draws: int, right: Array, k: int) -> Array:
    """Chance that k of the draws, taken without replacement, hold a right one; `right` [...] of them are right."""
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


def interval(values: Array, blocks: Array, times: Array | None) -> Estimate:
    """The mean of `values` [P] with its interval.

    Args:
        values: of each problem.
        blocks: [P, m] the same of each block of k.
        times: [R, P] how often each resample holds each problem, over P; None where no problem is drawn again.
    """
    value = float(values.mean())
    problems, count = blocks.shape
    if blocks.min() == blocks.max() and blocks.min() in (0, 1):
        edge = TAIL ** (1 / (problems if times is not None else blocks.size))
        return Estimate(value, edge, 1.0) if blocks.min() else Estimate(value, 0.0, 1 - edge)
    if times is not None:
        low, high = np.quantile(times @ values, (TAIL, 1 - TAIL))
    else:
        half = 1.96 * np.sqrt((blocks.var(1, ddof=1) / count).sum()) / problems
        low, high = np.clip((value - half, value + half), 0.0, 1.0)
    return Estimate(value, float(low), float(high))


def choose(n: Array, k: int) -> Array:
    """Logarithm of the binomial coefficient: its size goes beyond float64 at a few hundred draws."""
    result: Array = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    return result
