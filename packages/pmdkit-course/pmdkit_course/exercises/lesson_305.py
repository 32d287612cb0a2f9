"""Exercises of lesson 305: comparing methods by their seeds, and what choosing the best checkpoint adds."""

import numpy as np
from scipy.stats import norm, t

from pmdkit_course.exercises import Answer, Array, Exercise


def difference(first: Array, second: Array) -> Array:
    """The differences are the data: their mean, and Student's t for few of them."""
    return around(second - first, t.ppf(0.975, len(first) - 1))


def around(values: Array, factor: float, ddof: int = 1) -> tuple[float, float, float]:
    """The mean of some values, and so many standard errors on either side: (mean, low, high)."""
    half = factor * values.std(ddof=ddof) / np.sqrt(len(values))
    return values.mean(), values.mean() - half, values.mean() + half


def unpaired(first: Array, second: Array, factor: float | None = None) -> tuple[float, float, float]:
    """(mean, low, high) of the difference, as if the seeds had nothing in common."""
    gap, n = second.mean() - first.mean(), len(first)
    half = (factor or t.ppf(0.975, 2 * n - 2)) * np.sqrt((first.var(ddof=1) + second.var(ddof=1)) / n)
    return gap, gap - half, gap + half


def welch(first: Array, second: Array) -> tuple[float, float, float]:
    """The same, as if they had nothing in common, not even how much they spread."""
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
