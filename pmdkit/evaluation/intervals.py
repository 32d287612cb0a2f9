"""Two intervals for k draws on each problem: the draws alone drawn again, and the problems drawn again too.

For problems that are asked k times and no more; `statistics.evaluate` is for those that can be asked more often.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, norm
from scipy.stats import t as student

from pmdkit.evaluation.statistics import TAIL, Array, Draws, majority

RESAMPLES = 200  # of each problem's vote; a standard deviation known to 5 %, averaged over problems
TIE = 1.5  # at a tie the variance of a resampled vote is two thirds of the real one


@dataclass(frozen=True)
class Interval:
    """From low to high, 95 %."""

    low: float
    high: float

    @property
    def width(self) -> float:
        """high - low."""
        return self.high - self.low


@dataclass(frozen=True)
class Measured:
    """A share between 0 and 1.

    Attributes:
        value: the share.
        low, high: the wider of the two intervals.
        interval_over: which one it is.
        over_draws: where it would lie if the same problems were asked again.
        over_problems: where it would lie on all problems of the kind, of which these are a sample.
    """

    value: float
    low: float
    high: float
    interval_over: Literal["draws", "problems"]
    over_draws: Interval
    over_problems: Interval


def measure(draws: Draws, rng: np.random.Generator) -> dict[str, Measured]:
    r"""`avg_at_k`, `pass_at_k` and `maj_at_k` of k draws on each problem, each with both intervals.

    Thirty problems of a contest are all there are, as a benchmark: two models that answered them differ by the luck of
    the draws alone, and the interval over draws is the one to compare. As a measure of ability they are a sample of
    what a contest may ask, and the interval over problems is the one to believe.

    Both are intervals of Clopper and Pearson for so many independent draws as would have the same variance,
    \(\bar v (1 - \bar v) / \widehat{\mathrm{var}}\). Over problems the variance is that between problems, which holds
    the luck of the draws on them already, with Student's t for few problems. Over draws it is the sum of:

    - avg@k: the unbiased p (1 - p) / (k - 1); where all draws on a problem agree, that of one in k + 2.
    - pass@k: 1 for a problem with exactly one right draw, which could have been missed, and 1 more in all. This is
      the jackknife: at least the true variance on average (Efron and Stein 1981), often twice as much.
    - maj@k: that of votes drawn again from the answers given, with a factor of 1.5 k / (k - 1), at least that of
      avg@k. Approximate: about right where two answers tie, too wide elsewhere.

    The sum is never taken for more than that of equal problems, \(\bar v (1 - \bar v)\) (Hoeffding 1956), so 0 of 30
    and k = 1 have the exact binomial interval.

    Source: Korn and Graubard, Survey Methodology 24 (1998), for the effective number of draws.

    Args:
        draws: [P, k].
        rng: of the votes that are drawn again.
    """
    problems, k = draws.right.shape
    votes = majority(draws.right, draws.answer)
    each = {"avg_at_k": draws.right.mean(1), "pass_at_k": draws.right.max(1), "maj_at_k": votes}
    average = luck_of_average(draws.right)
    vote = max(average, luck_of_vote(draws, rng))
    luck = {"avg_at_k": average, "pass_at_k": luck_of_pass(draws.right), "maj_at_k": vote}
    fewest = {"avg_at_k": problems * k, "pass_at_k": problems, "maj_at_k": problems}
    return {
        name: wider(float(values.mean()), over_draws(values, luck[name], fewest[name]), over_problems(values))
        for name, values in each.items()
    }


def wider(value: float, draws: Interval, problems: Interval) -> Measured:
    """The wider interval is the one that is told first."""
    over: Literal["draws", "problems"] = "draws" if draws.width > problems.width else "problems"
    chosen = draws if over == "draws" else problems
    return Measured(value, chosen.low, chosen.high, over, draws, problems)


def over_draws(values: Array, luck: float, fewest: int) -> Interval:
    """The problems stay, the draws are drawn again; `luck` is the sum of their variances, at most that of `fewest`."""
    mean = float(values.mean())
    spread = mean * (1 - mean)
    luck /= len(values) ** 2
    return binomial(mean, spread / luck if luck * fewest < spread else fewest)


def over_problems(values: Array) -> Interval:
    """The problems are a sample. Values in [0, 1] vary at most as zeros and ones do."""
    count, mean = len(values), float(values.mean())
    if count == 1 or values.min() == values.max():
        return binomial(mean, count)
    ratio = norm.ppf(1 - TAIL) / student.ppf(1 - TAIL, count - 1)
    return binomial(mean, count * mean * (1 - mean) / float(values.var(ddof=1)) * ratio**2)


def binomial(share: float, count: float) -> Interval:
    """The interval of Clopper and Pearson; the count need not be whole. At 0 and 1 it reaches to the end."""
    right, wrong = share * count, (1 - share) * count
    low = float(beta.ppf(TAIL, right, wrong + 1)) if share > 0 else 0.0
    high = float(beta.ppf(1 - TAIL, right + 1, wrong)) if share < 1 else 1.0
    return Interval(low, high)


def luck_of_average(right: Array) -> float:
    """Sum of the variances of the shares of right draws; with one draw none is seen, and it is infinite."""
    k = right.shape[1]
    if k == 1:
        return np.inf
    share = right.mean(1)
    agree = (k + 1) / (k + 2) ** 2 / k
    return float(np.maximum(share * (1 - share) / (k - 1), agree).sum())


def luck_of_pass(right: Array) -> float:
    """Problems that hang on a single draw, and one more: that none was seen does not mean that there is none."""
    return float((right.sum(1) == 1).sum() + 1)


def luck_of_vote(draws: Draws, rng: np.random.Generator) -> float:
    """Sum of the variances of the votes; with one draw none is seen, and it is infinite."""
    k = draws.right.shape[1]
    if k == 1:
        return np.inf
    total = sum(float(voted_again(*row, rng).var()) for row in zip(draws.right, draws.answer, strict=True))
    return TIE * k / (k - 1) * total


def voted_again(right: Array, answer: NDArray[np.int64], rng: np.random.Generator) -> Array:
    """[RESAMPLES] share of right votes for the most frequent answer, the votes of one problem [k] drawn again."""
    place = np.unique(answer, return_inverse=True)[1]
    count = np.bincount(place)
    if len(count) == 1:
        return np.full(RESAMPLES, right.mean())
    good = np.bincount(place, weights=right) / count
    votes = rng.multinomial(len(answer), count / len(answer), RESAMPLES)
    top = votes == votes.max(1, keepdims=True)
    share: Array = (top * good).sum(1) / top.sum(1)
    return share
