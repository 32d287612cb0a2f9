"""Exercises of lesson 303: the two errors of a score, and pass@k."""

from math import comb

import numpy as np

from pmdkit_course.exercises import Array, Exercise


def two_errors(right: Array, draws: int) -> Array:
    """Over draws each problem keeps its own p, so variances add; over problems the spread holds the draws already."""
    p = right / draws
    return luck(p, draws - 1), p.std(ddof=1) / np.sqrt(len(p))


def luck(p: Array, draws: int) -> Array:
    """Standard error of the mean of shares p, [P], with variances p (1 - p) / draws."""
    return np.sqrt((p * (1 - p) / draws).sum()) / len(p)


def pooled(right: Array, draws: int) -> Array:
    """Every draw a coin of one and the same bias."""
    mean = right.mean() / draws
    return np.sqrt(mean * (1 - mean) / (len(right) * draws)), two_errors(right, draws)[1]


def twice(right: Array, draws: int) -> Array:
    """The luck of the draws added to a spread that holds it."""
    over_draws, over_problems = two_errors(right, draws)
    return over_draws, np.hypot(over_draws, over_problems)


def graded(rng: np.random.Generator) -> list[tuple[Array, int]]:
    """Problems of mixed difficulty, a few of them, and some that are always or never solved."""
    drawn = [(rng.binomial(k, rng.beta(0.4, 1.2, size=n)), k) for n, k in ((30, 32), (12, 8), (40, 50))]
    return [*drawn, (np.array([0, 4, 0, 4, 1]), 4)]


def pass_at(right: Array, draws: int, k: int) -> Array:
    """One minus the share of sets of k draws that hold wrong ones only."""
    return 1 - np.mean([comb(draws - int(c), k) / comb(draws, k) for c in right])


EXERCISES = (
    Exercise(
        solution=two_errors,
        inputs=graded,
        slips={
            "The first takes all draws for flips of one coin. Problems always or never solved add no luck: give each "
            "problem its own p.": (
                pooled,
                lambda right, draws: (
                    pooled(right, draws)[0] * np.sqrt(right.size * draws / (right.size * draws - 1)),
                    two_errors(right, draws)[1],
                ),
            ),
            "Standard errors do not add up; their squares do.": tuple(
                lambda right, draws, power=power: (
                    np.sqrt(right / draws * (1 - right / draws) / (draws - 1)).sum() / len(right) ** power,
                    two_errors(right, draws)[1],
                )
                for power in (1, 0.5)
            ),
            "The second takes problems for coins. How far do their shares spread?": lambda right, draws: (
                two_errors(right, draws)[0],
                np.sqrt(np.mean(right / draws) * (1 - np.mean(right / draws)) / len(right)),
            ),
            "The second divides by the root of the draws. The sample is one of problems.": lambda right, draws: (
                two_errors(right, draws)[0],
                (right / draws).std(ddof=1) / np.sqrt(draws),
            ),
            "The luck of the draws is taken out of the second. Other problems come with other draws.": (
                lambda right, draws: (
                    two_errors(right, draws)[0],
                    np.sqrt(np.maximum(two_errors(right, draws)[1] ** 2 - two_errors(right, draws)[0] ** 2, 0)),
                )
            ),
            "The second counts the draws twice: the spread between observed shares holds their luck already.": twice,
        },
        hints=(
            "The score is the mean of P shares. Over draws they are independent with variances of their own; add them.",
            "An unbiased estimate of the variance of a share of k draws is p (1 - p) / (k - 1).",
            "Over problems: the standard deviation of the P shares with ddof=1, divided by the square root of P.",
        ),
    ),
    Exercise(
        solution=pass_at,
        inputs=lambda rng: [
            (rng.binomial(50, rng.beta(0.4, 2, size=12)), 50, 8),
            (rng.binomial(16, rng.beta(1, 2, size=6)), 16, 4),
            (np.array([0, 1, 2, 5]), 6, 2),
            (np.array([0, 1, 8]), 8, 8),
        ],
        slips={
            "That puts the observed share into 1 - (1 - p)^k. It is "
            "too low on average; count sets of k draws.": lambda right, draws, k: np.mean(1 - (1 - right / draws) ** k),
            "That is one problem of average difficulty. Take pass@k "
            "of each problem first, then the mean.": lambda right, draws, k: 1 - (1 - np.mean(right / draws)) ** k,
            "That is the chance that all k are right.": (
                lambda right, draws, k: np.mean([comb(int(c), k) / comb(draws, k) for c in right]),
                lambda right, draws, k: np.mean((right / draws) ** k),
            ),
            "That is the chance that exactly one of the k is right. More count too.": lambda right, draws, k: np.mean(
                [int(c) * comb(draws - int(c), k - 1) / comb(draws, k) for c in right]
            ),
            "That asks whether most of the answers are right. One right answer among k is enough.": (
                lambda right, draws, k: np.mean(right / draws > 0.5)
            ),
            "That adds up chances as if two right answers could not come together.": lambda right, draws, k: np.mean(
                np.minimum(1, k * right / draws)
            ),
        },
        hints=(
            "It is easier to count the sets of k answers that hold none.",
            "Of all comb(n, k) sets, comb(n - c, k) hold wrong answers only. `math.comb` gives 0 where there is none.",
        ),
    ),
)
