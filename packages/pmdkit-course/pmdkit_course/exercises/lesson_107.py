"""Exercises of lesson 107: comparing runs by seed, and a bandit of your own."""

import numpy as np
from scipy.special import comb
from scipy.stats import binom
from scipy.stats import t as student

from pmdkit_course.exercises import Answer, Array, Exercise
from pmdkit_course.exercises.lesson_305 import INTERVALS


def paired_interval(first: Array, second: Array) -> tuple[float, float]:
    """Student's t on the n differences, with n - 1 degrees of freedom."""
    difference = second - first
    n = len(difference)
    half = student.ppf(0.975, n - 1) * difference.std(ddof=1) / np.sqrt(n)
    return difference.mean() - half, difference.mean() + half


def ends(interval: Answer) -> Answer:
    """An interval without its middle."""
    return lambda first, second: interval(first, second)[1:]


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
        solution=paired_interval,
        inputs=results,
        slips={says: tuple(map(ends, wrong)) for says, wrong in INTERVALS.items() if isinstance(wrong, tuple)},
        hints=(
            "First make one number per seed. What is its mean, and the standard error of that mean?",
            "The standard error is difference.std(ddof=1) / np.sqrt(n).",
            "scipy.stats.t.ppf(0.975, n - 1) standard errors on each side of the mean.",
        ),
    ),
    Exercise(
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
            "There is one coin too many: arm a, counted from 0, tosses a + 1.": lambda contexts, arms: binom.pmf(
                1 + np.arange(contexts)[:, None], 2 + np.arange(arms)[None, :], 0.5
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
