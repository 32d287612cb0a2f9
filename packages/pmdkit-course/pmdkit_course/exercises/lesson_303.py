"""Exercises of lesson 303: the error of a score, pass@k, comparing methods, and the price of choosing."""

from math import comb

import numpy as np
from scipy.stats import norm, t

from pmdkit_course.exercises import Answer, Array, Exercise


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


def difference(first: Array, second: Array) -> Array:
    """The differences are the data: their mean, and Student's t for few of them."""
    return around(second - first, t.ppf(0.975, len(first) - 1))


def around(values: Array, factor: float, ddof: int = 1) -> Array:
    """The mean of some values, and so many standard errors on either side."""
    half = factor * values.std(ddof=ddof) / np.sqrt(len(values))
    return values.mean(), values.mean() - half, values.mean() + half


def unpaired(first: Array, second: Array, factor: float | None = None) -> Array:
    """As if the seeds had nothing in common."""
    gap, n = second.mean() - first.mean(), len(first)
    half = (factor or t.ppf(0.975, 2 * n - 2)) * np.sqrt((first.var(ddof=1) + second.var(ddof=1)) / n)
    return gap, gap - half, gap + half


def welch(first: Array, second: Array) -> Array:
    """As if they had nothing in common, not even how much they spread."""
    parts = np.array([first.var(ddof=1), second.var(ddof=1)]) / len(first)
    freedom = parts.sum() ** 2 / (parts**2).sum() * (len(first) - 1)
    return unpaired(first, second, t.ppf(0.975, freedom))


INTERVALS: dict[str, Answer | tuple[Answer, ...]] = {
    "That forgets that the seeds are the same. What a seed does to both runs cancels in their difference.": (
        unpaired,
        *(
            lambda first, second, factor=factor: unpaired(first, second, factor(len(first)))
            for factor in (lambda n: t.ppf(0.975, n - 1), lambda n: 1.96, lambda n: norm.ppf(0.975))
        ),
        welch,
    ),
    "That is where single differences lie, and not how well their mean is known.": (
        lambda first, second: (np.mean(second - first), *np.percentile(second - first, [2.5, 97.5])),
        lambda first, second: (np.mean(second - first), min(second - first), max(second - first)),
        lambda first, second: around(second - first, t.ppf(0.975, len(first) - 1) * np.sqrt(len(first))),
    ),
    "That is a 99 % interval. The 95 % one leaves 2.5 % on each side.": (
        lambda first, second: around(second - first, t.ppf(0.995, len(first) - 1)),
    ),
}
"Wrong intervals of a mean difference, as (mean, low, high)."


def seeds(rng: np.random.Generator) -> list[tuple[Array, Array]]:
    """Pairs that share the luck of their seed; the last one has two seeds."""
    cases = []
    for n in (3, 5, 8, 2):
        seed = rng.normal(0.7, 0.1, size=n)
        cases.append((seed + rng.normal(0, 0.02, size=n), seed + 0.03 + rng.normal(0, 0.02, size=n)))
    return cases


def honest_best(scores: Array) -> Array:
    """Chosen on one half of the problems, told on the other; both ways, and the mean of the two."""
    return exchanged(scores[:, ::2], scores[:, 1::2])


def exchanged(first: Array, second: Array) -> Array:
    """Each half of the problems chooses the checkpoint that the other reports."""
    return (second.mean(1)[first.mean(1).argmax()] + first.mean(1)[second.mean(1).argmax()]) / 2


def checkpoints(rng: np.random.Generator) -> list[tuple[Array]]:
    """Checkpoints that hardly differ, an odd number of problems among them, and a single checkpoint."""
    p = rng.beta(0.5, 1, size=31)
    return [
        (rng.binomial(8, rng.permutation(p)[:n], size=(k, n)) / 8,)
        for k, n in ((6, 30), (12, 31), (20, 16), (1, 10), (5, 12), (9, 20), (7, 25), (8, 14), (10, 28), (6, 18))
    ]


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
            "That adds up chances as if two right answers could not come together.": lambda right, draws, k: np.mean(
                np.minimum(1, k * right / draws)
            ),
        },
        hints=(
            "It is easier to count the sets of k answers that hold none.",
            "Of all comb(n, k) sets, comb(n - c, k) hold wrong answers only. `math.comb` gives 0 where there is none.",
        ),
    ),
    Exercise(
        solution=difference,
        inputs=seeds,
        slips=INTERVALS,
        hints=(
            "Forget the two lists; their differences, one per seed, are the data.",
            "Mean, plus and minus t times the standard deviation (ddof=1) over the square root of S.",
            "t is scipy.stats.t.ppf(0.975, S - 1).",
        ),
    ),
    Exercise(
        solution=honest_best,
        inputs=checkpoints,
        slips={
            "That is the number that flatters: chosen and reported on the same problems.": lambda scores: scores.mean(
                1
            ).max(),
            "Even and odd problems are the halves, and not the first and the last.": lambda scores: exchanged(
                *np.split(scores, [scores.shape[1] // 2], axis=1)
            ),
            "All problems chose, so those that report have chosen too.": (
                lambda scores: (lambda best: (best[::2].mean() + best[1::2].mean()) / 2)(
                    scores[scores.mean(1).argmax()]
                ),
                lambda scores: (
                    (scores[scores[:, ::2].mean(1).argmax()].mean() + scores[scores[:, 1::2].mean(1).argmax()].mean())
                    / 2
                ),
            ),
            "That is the best share of every problem. One checkpoint must do for all.": lambda scores: scores.max(
                0
            ).mean(),
            "That takes the larger or the smaller of the two ways. Their mean is asked for.": tuple(
                lambda scores, pick=pick: pick(
                    scores[:, 1::2].mean(1)[scores[:, ::2].mean(1).argmax()],
                    scores[:, ::2].mean(1)[scores[:, 1::2].mean(1).argmax()],
                )
                for pick in (max, min)
            ),
            "That is the last checkpoint. Nothing is chosen.": lambda scores: scores[-1].mean(),
            "Each half chooses and reports for itself. The half that chose must not report.": lambda scores: (
                (scores[:, ::2].mean(1).max() + scores[:, 1::2].mean(1).max()) / 2
            ),
            "That is one of the two ways; do it with the halves exchanged too, and take the mean.": (
                lambda scores: scores[:, 1::2].mean(1)[scores[:, ::2].mean(1).argmax()],
                lambda scores: scores[:, ::2].mean(1)[scores[:, 1::2].mean(1).argmax()],
            ),
            "That is a checkpoint taken at random: nothing is "
            "chosen. The half-scores may tell you something.": lambda scores: scores.mean(),
        },
        hints=(
            "scores[:, ::2].mean(1) is the score of each checkpoint on the even problems.",
            "`argmax` on the even scores gives a checkpoint; look it up in the odd scores.",
        ),
    ),
)
