"""All intervals: Student's t over seeds, exact binomial; avg@k, pass@k and maj@k.

Everything else is from scipy.stats. Its own t interval warns, or is NaN, if all seeds agree, and its exact binomial
interval takes whole counts only; both are formulas here.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import scipy  # scipy.stats is loaded at its first use: half a second that a training run does not need
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEVEL = 0.95
TAIL = 0.025  # on either side of a 95 % interval
RESAMPLES = 2000
VOTE_RESAMPLES = 200  # resampled votes per problem: its standard deviation to 5 %, then averaged over problems
TIE = 1.5  # factor at a tie, where a resampled vote has two thirds of the real variance


# ---- Seeds: means, and differences of pairs


@dataclass(frozen=True)
class MeanInterval:
    """A mean with its 95 % interval.

    Attributes:
        low, high: ends of the interval; None with a single value.
        count: number of values.
    """

    mean: float
    low: float | None
    high: float | None
    count: int


def mean_interval(values: Array) -> MeanInterval:
    r"""The mean and its 95 % interval.

    $$ \bar x \pm t_{0.975,\,n-1}\, \frac{s}{\sqrt n} $$

    Differs: a bootstrap would resample seeds; with five of them its intervals are too short.
    Shapes: [n] to one interval, in the units of the values.
    Watch: assumes values normally distributed about their mean. A pass rate near 1 is not: the interval may exceed 1.
    """
    count = len(values)
    if count == 0:
        raise ValueError("mean_interval got no values; expected at least one")
    mean = float(np.mean(values))
    if count == 1:
        return MeanInterval(mean, None, None, 1)
    half = float(scipy.stats.t.ppf((1 + LEVEL) / 2, count - 1) * np.std(values, ddof=1) / np.sqrt(count))
    return MeanInterval(mean, mean - half, mean + half, count)


@dataclass(frozen=True)
class PairedDifference:
    """How much larger the second of two methods is than the first on the same seeds.

    Attributes:
        difference: mean over the seeds.
        pairs, wins, ties: number of seeds, and of those where the second is larger, or equal.
    """

    difference: MeanInterval
    pairs: int
    wins: int
    ties: int


def paired_difference(first: Array, second: Array) -> PairedDifference:
    """Compare second - first, [n] values of the same n seeds in the same order: effects of the seed on both cancel."""
    if len(first) != len(second):
        raise ValueError(f"paired_difference got {len(first)} and {len(second)} values; expected one per seed in both")
    difference = second - first
    wins, ties = int((difference > 0).sum()), int((difference == 0).sum())
    return PairedDifference(mean_interval(difference), len(difference), wins, ties)


def interval_text(interval: MeanInterval | Array, form: str = ".2f") -> str:
    """`0.91 [0.88, 0.94]` for an interval or an array of mean, low, high; the mean alone if there are no ends."""
    mean, low, high = (interval.mean, interval.low, interval.high) if isinstance(interval, MeanInterval) else interval
    return f"{mean:{form}}" if low is None or high is None else f"{mean:{form}} [{low:{form}}, {high:{form}}]"


# ---- Graded draws. Shapes: P problems, n = m k draws on each, in m blocks of k.
# Two methods: `estimate_at_k` reads the spread off many blocks or problems; `measure_at_k` has one block of k, and
# bounds what it cannot see. Stored results need both: smollm2.json the first, smollm2-gsm8k.json the second.


@dataclass(frozen=True)
class Interval:
    """A 95 % interval from low to high."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """high - low."""
        return self.high - self.low


def clopper_pearson(share: float, count: float) -> Interval:
    """The exact binomial interval of a share; the count need not be whole. At 0 and 1 it extends to that end."""
    right, wrong = share * count, (1 - share) * count
    low = float(scipy.stats.beta.ppf(TAIL, right, wrong + 1)) if share > 0 else 0.0
    high = float(scipy.stats.beta.ppf(1 - TAIL, right + 1, wrong)) if share < 1 else 1.0
    return Interval(low, high)


@dataclass(frozen=True)
class GradedDraws:
    """Draws on P problems, n on each, with their grades.

    Attributes:
        right: [P, n] 1 for a right draw, 0 for a wrong one.
        answer: [P, n] integers, equal where two draws on a problem give the same answer.
        exhaustive: whether the P problems are all there are, not a sample of them.
    """

    right: Array
    answer: NDArray[np.int64]
    exhaustive: bool = False


@dataclass(frozen=True)
class ShareEstimate:
    """A share between 0 and 1 with its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ShareIntervals(ShareEstimate):
    """A share between 0 and 1; low and high are the wider of two intervals.

    Attributes:
        interval_over: which one is wider.
        over_draws: where the share would lie if the same problems were asked again.
        over_problems: where it would lie on all problems of the kind, of which these are a sample.
    """

    interval_over: Literal["draws", "problems"]
    over_draws: Interval
    over_problems: Interval


def estimate_at_k(draws: GradedDraws, k: int, rng: np.random.Generator) -> dict[str, ShareEstimate]:
    r"""`avg_at_k`, `pass_at_k` and `maj_at_k` with 95 % intervals, from many draws on each problem.

    avg@k is the share of right draws. pass@k is the chance that at least one of k draws is right,
    \(1 - \binom{n - c}{k} / \binom{n}{k}\) with c of n right. maj@k is the chance that the most frequent of k answers
    is right; answers that tie share the vote.

    Source: arXiv:2107.03374 (pass@k, unbiased for every n >= k).
    Differs: maj@k is the mean over the m blocks, which is unbiased too.

    Where problems are a sample, the interval is a percentile bootstrap over problems, each with its draws: the spread
    between problems already includes the noise of the draws on them, and resampling those would count it twice. Where
    the problems are all there are, only the draws vary: the interval is 1.96 standard errors on either side, from the
    spread of the m blocks within each problem. Where every block is 0 or every block is 1, neither sees a spread; the
    interval is then the exact one for u equal outcomes, u problems or blocks: from 0.025^(1/u) to 1. Nor does a
    bootstrap over problems with equal shares, or over one; it is then the exact binomial one, as in `measure_at_k`.

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
    return {name: share_interval(*table, None if draws.exhaustive else times) for name, table in tables.items()}


def share_interval(values: Array, blocks: Array, times: Array | None) -> ShareEstimate:
    """The mean of `values` [P] with its 95 % interval. `blocks` [P, m] has the value of each block of k draws; `times`
    [R, P] says how often each resample has each problem, divided by P, or is None if problems are not resampled."""
    value = float(values.mean())
    problems, count = blocks.shape
    if blocks.min() == blocks.max() and blocks.min() in (0, 1):
        edge = TAIL ** (1 / (problems if times is not None else blocks.size))
        return ShareEstimate(value, edge, 1.0) if blocks.min() else ShareEstimate(value, 0.0, 1 - edge)
    if times is not None and values.min() == values.max():  # as with a single problem
        ends = over_problems(values)
        low, high = ends.low, ends.high
    elif times is not None:
        low, high = np.quantile(times @ values, (TAIL, 1 - TAIL))
    else:
        half = 1.96 * np.sqrt((blocks.var(1, ddof=1) / count).sum()) / problems
        low, high = np.clip((value - half, value + half), 0.0, 1.0)
    return ShareEstimate(value, float(low), float(high))


def pass_at_k(draws: int, right: Array, k: int) -> Array:
    """Chance that k draws of all, without replacement, hold one of the `right` [...] right ones; NaN if k > draws."""
    chance: Array = 1.0 - scipy.stats.hypergeom.pmf(0, draws, right, k)
    return chance


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


def measure_at_k(draws: GradedDraws, rng: np.random.Generator) -> dict[str, ShareIntervals]:
    r"""`avg_at_k`, `pass_at_k` and `maj_at_k` of k draws on each problem and no more, each with two intervals.

    As a benchmark, the thirty problems of a contest are all there are: in a comparison of two models on them only the
    draws are random, and the interval over draws is the one to use. As a measure of ability, they are a sample of what
    a contest may ask, and the interval over problems is the one to trust.

    Both are Clopper-Pearson intervals for the number of independent draws that would have the same variance,
    \(\bar v (1 - \bar v) / \widehat{\mathrm{var}}\). Over problems the variance is that between problems, which already
    includes the luck of the draws on them, with Student's t for few problems. Over draws it is the sum of:

    - avg@k: the unbiased p (1 - p) / (k - 1); if all draws on a problem agree, p (1 - p) / k at p = 1 / (k + 2).
    - pass@k: 1 for a problem with exactly one right draw, which could have been missed, and 1 more in total. This is
      the jackknife: on average at least the true variance (Efron and Stein 1981), often twice as much.
    - maj@k: the variance of votes resampled from the answers given, times 1.5 k / (k - 1), and at least that of
      avg@k. Approximate: about right where two answers tie, too wide elsewhere.

    The sum is capped at that of equal problems, \(\bar v (1 - \bar v)\) (Hoeffding 1956), so 0 of 30 and k = 1 have the
    exact binomial interval.

    Source: Korn and Graubard, Survey Methodology 24 (1998), for the effective number of draws.

    Args:
        draws: [P, k].
        rng: of the resampled votes.
    """
    problems, k = draws.right.shape
    average = variance_of_average(draws.right)
    votes = np.inf  # one draw shows no variance
    if k > 1:
        rows = zip(draws.right, draws.answer, strict=True)
        votes = TIE * k / (k - 1) * sum(float(resampled_votes(*row, rng).var()) for row in rows)
    measured = {  # value of each problem, variance of their sum over draws, fewest draws behind that sum
        "avg_at_k": (draws.right.mean(1), average, problems * k),
        # problems that hang on a single draw, plus one: seeing none does not mean there are none
        "pass_at_k": (draws.right.max(1), float((draws.right.sum(1) == 1).sum() + 1), problems),
        "maj_at_k": (majority(draws.right, draws.answer), max(average, votes), problems),
    }
    shares = {}
    for name, (values, variance, fewest) in measured.items():
        mean = float(values.mean())
        spread, each = mean * (1 - mean), variance / problems**2
        redrawn = clopper_pearson(mean, spread / each if each * fewest < spread else fewest)
        sampled = over_problems(values)
        wider: Literal["draws", "problems"] = "draws" if redrawn.width > sampled.width else "problems"
        ends = redrawn if wider == "draws" else sampled
        shares[name] = ShareIntervals(mean, ends.low, ends.high, wider, redrawn, sampled)
    return shares


def over_problems(values: Array) -> Interval:
    """Interval for problems that are a sample. Values in [0, 1] vary at most as zeros and ones do."""
    count, mean = len(values), float(values.mean())
    if count == 1 or values.min() == values.max():
        return clopper_pearson(mean, count)
    ratio = scipy.stats.norm.ppf(1 - TAIL) / scipy.stats.t.ppf(1 - TAIL, count - 1)
    return clopper_pearson(mean, count * mean * (1 - mean) / float(values.var(ddof=1)) * ratio**2)


def variance_of_average(right: Array) -> float:
    """Sum of the variances of the shares of right draws; infinite with one draw, which shows no variance."""
    k = right.shape[1]
    if k == 1:
        return np.inf
    share = right.mean(1)
    agree = (k + 1) / (k + 2) ** 2 / k
    return float(np.maximum(share * (1 - share) / (k - 1), agree).sum())


def resampled_votes(right: Array, answer: NDArray[np.int64], rng: np.random.Generator) -> Array:
    """[VOTE_RESAMPLES] share of right votes for the most frequent answer, with one problem's votes [k] resampled."""
    place = np.unique(answer, return_inverse=True)[1]
    count = np.bincount(place)
    if len(count) == 1:
        return np.full(VOTE_RESAMPLES, right.mean())
    good = np.bincount(place, weights=right) / count
    votes = rng.multinomial(len(answer), count / len(answer), VOTE_RESAMPLES)
    top = votes == votes.max(1, keepdims=True)
    share: Array = (top * good).sum(1) / top.sum(1)
    return share
