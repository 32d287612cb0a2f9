"""Exercises of lesson 107: comparing runs by seed, and a bandit of your own."""

from collections.abc import Callable

import numpy as np
from scipy.special import comb
from scipy.stats import binom, norm
from scipy.stats import t as student

from pmdkit_course.exercises import Answer, Array, Exercise


def paired_interval(first: Array, second: Array) -> tuple[float, float]:
    """Student's t on the n differences, with n - 1 degrees of freedom."""
    difference = second - first
    n = len(difference)
    half = student.ppf(0.975, n - 1) * difference.std(ddof=1) / np.sqrt(n)
    return difference.mean() - half, difference.mean() + half


def around(difference: float, half: float) -> tuple[float, float]:
    """An interval by its middle and half its width."""
    return difference - half, difference + half


def unpaired(first: Array, second: Array) -> tuple[float, float]:
    """Two samples that know nothing of each other, Welch's degrees of freedom."""
    parts = np.array([first.var(ddof=1), second.var(ddof=1)]) / len(first)
    freedom = parts.sum() ** 2 / (parts**2).sum() * (len(first) - 1)
    return around(second.mean() - first.mean(), student.ppf(0.975, freedom) * np.sqrt(parts.sum()))


def scaled(factor: Callable[[int], float], ddof: int = 1, root: bool = True) -> Answer:
    """The paired interval with another quantile, another deviation, or no root of n."""

    def interval(first: Array, second: Array) -> tuple[float, float]:
        difference = second - first
        n = len(difference)
        return around(difference.mean(), factor(n) * difference.std(ddof=ddof) / (np.sqrt(n) if root else 1))

    return interval


def t_quantile(n: int) -> float:
    """Of Student's t with n - 1 degrees of freedom, 95 % two-sided."""
    return float(student.ppf(0.975, n - 1))


def coin_success(contexts: int, arms: int) -> Array:
    """Binomial probabilities: contexts are rows, arms are columns."""
    heads = 1 + np.arange(contexts)[:, None]
    coins = 1 + np.arange(arms)[None, :]
    return comb(coins, heads) / 2.0**coins


def results(rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Seeds that move both runs alike; three seeds only; a difference of the other sign."""
    cases = []
    for n, gap in ((10, 0.05), (5, -0.1), (3, 0.0)):
        luck = rng.normal(0.6, 0.1, size=n)
        cases.append((luck + rng.normal(0, 0.02, size=n), luck + gap + rng.normal(0, 0.02, size=n)))
    return cases


EXERCISES = (
    Exercise(
        id="107.1",
        solution=paired_interval,
        inputs=results,
        slips={
            "This treats the two as strangers: it adds the spread over seeds of both. They ran on the same seeds, so "
            "take differences first; what a seed does to both cancels.": (
                unpaired,
                *(
                    lambda a, b, factor=factor: around(
                        b.mean() - a.mean(), factor(len(a)) * np.sqrt((a.var(ddof=1) + b.var(ddof=1)) / len(a))
                    )
                    for factor in (
                        t_quantile,
                        lambda n: student.ppf(0.975, 2 * n - 2),
                        lambda n: 1.96,
                        lambda n: norm.ppf(0.975),
                    )
                ),
            ),
            "That is where single differences lie. Asked is the mean of n of them, and how well it is known.": (
                lambda a, b: np.percentile(b - a, [2.5, 97.5]),
                lambda a, b: ((b - a).min(), (b - a).max()),
            ),
            "That is a 99 % interval. The 95 % one leaves 2.5 % on each side.": scaled(
                lambda n: student.ppf(0.995, n - 1)
            ),
            "That is the spread of single differences. The mean of n of them is known better by the root of n.": scaled(
                t_quantile, root=False
            ),
        },
        hints=(
            "First make one number per seed. What is its mean, and the standard error of that mean?",
            "The standard error is difference.std(ddof=1) / np.sqrt(n).",
            "scipy.stats.t.ppf(0.975, n - 1) standard errors on each side of the mean.",
        ),
    ),
    Exercise(
        id="107.2",
        solution=coin_success,
        inputs=lambda rng: [(int(rng.integers(3, 6)), int(rng.integers(6, 9))), (2, 3), (4, 2), (1, 1)],
        slips={
            "That is the chance of at least so many heads. "
            "The context asks for exactly so many.": lambda contexts, arms: binom.sf(
                np.arange(contexts)[:, None], 1 + np.arange(arms)[None, :], 0.5
            ),
            "The first context asks for one head, not for none: "
            "contexts count from s = 0, heads from 1.": lambda contexts, arms: binom.pmf(
                np.arange(contexts)[:, None], 1 + np.arange(arms)[None, :], 0.5
            ),
            "The first arm tosses one coin, not none: arm a tosses a + 1.": lambda contexts, arms: binom.pmf(
                1 + np.arange(contexts)[:, None], np.arange(arms)[None, :], 0.5
            ),
            "Both counts start at 1 here: arm a tosses a + "
            "1 coins and context s asks for s + 1 heads.": lambda contexts, arms: binom.pmf(
                np.arange(contexts)[:, None], np.arange(arms)[None, :], 0.5
            ),
            "Rows and columns are swapped: contexts are rows, arms are columns.": lambda contexts, arms: (
                coin_success(arms, contexts).T
            ),
            "That is the chance of one particular row of heads and tails. Count the rows with that many heads.": (
                lambda contexts, arms: 0.5 ** (1 + np.arange(arms)) * np.ones((contexts, 1)),
                lambda contexts, arms: np.where(coin_success(contexts, arms) > 0, 0.5 ** (1 + np.arange(arms)), 0),
            ),
            "That is the chance of at most so many heads. The context asks for exactly so many.": (
                lambda contexts, arms: binom.cdf(1 + np.arange(contexts)[:, None], 1 + np.arange(arms)[None, :], 0.5)
            ),
        },
        hints=(
            "The number of heads among k fair coins is binomial: scipy.stats.binom.pmf(heads, k, 0.5).",
            "A column of heads, [contexts, 1], and a row of coins, [1, arms], broadcast to the table.",
        ),
    ),
)
