"""Exercises of lesson 402: the verdict of a race."""

import numpy as np
from scipy.stats import norm, t

from pmdkit_course.exercises import Array, Exercise


def verdict(first: Array, second: Array, tried: int) -> Array:
    """Student's t over the differences, at a level that all comparisons share (Bonferroni)."""
    return called(second - first, t.ppf(1 - 0.025 / tried, len(first) - 1))


def called(values: Array, factor: float) -> str:
    """Which side of 0 the interval lies on."""
    half = factor * values.std(ddof=1) / np.sqrt(len(values))
    if abs(values.mean()) <= half:
        return "undecided"
    return "better" if values.mean() > 0 else "worse"


def strangers(first: Array, second: Array, factor: float) -> str:
    """The verdict by the interval of two samples that share nothing."""
    gap, half = second.mean() - first.mean(), factor * np.sqrt((first.var(ddof=1) + second.var(ddof=1)) / len(first))
    return "undecided" if abs(gap) <= half else ("better" if gap > 0 else "worse")


def apart(first: Array, second: Array, tried: int) -> str:
    """The verdict by an interval for each of the two: undecided if they overlap."""
    n = len(first)
    halves = [t.ppf(1 - 0.025 / tried, n - 1) * x.std(ddof=1) / np.sqrt(n) for x in (first, second)]
    gap = second.mean() - first.mean()
    return "undecided" if abs(gap) <= sum(halves) else ("better" if gap > 0 else "worse")


def races(rng: np.random.Generator) -> list[tuple[Array, Array, int]]:
    """Races of which each tells two ways to judge apart: by how many standard errors the arms differ.

    Among them a clear win, a clear loss, leads that are luck, and pairs on either side of the limit.
    """
    cases = []
    close = []  # between the levels that somebody may take for 1 - 0.05 / tried
    for seeds, tried in ((5, 1), (8, 10), (3, 4), (6, 2)):
        levels: tuple[float, ...] = (
            1 - 0.05 / tried,
            1 - 0.1 / tried,
            1 - 0.05 / max(tried - 1, 1),
            0.95 ** (1 / tried),
            *falling(tried),
        )
        levels += (1 - 0.025 / tried, 0.99)
        limits = {round(t.ppf((1 + level) / 2, seeds - 1), 9) for level in levels} | {1.96, norm.ppf(1 - 0.025 / tried)}
        steps = np.sort(list(limits | {t.ppf(1 - 0.025 / tried, seeds)}))
        close += [(seeds, tried, errors) for errors in (steps[1:] + steps[:-1]) / 2]
    for seeds, tried, errors in ((5, 1, 9.0), (5, 1, -9.0), (5, 1, 1.0), (5, 1, -1.0), (8, 10, -6.0), *close):
        noise = rng.normal(size=seeds)
        noise = (noise - noise.mean()) / noise.std(ddof=1)
        luck = rng.normal(0.7, 0.5, size=seeds)  # of the seed, in both runs
        cases.append((luck, luck + 0.1 * (noise + errors / np.sqrt(seeds)), tried))
    return cases


def falling(tried: int) -> tuple[float, float, float]:
    """Levels that get lower with the number of comparisons."""
    return 0.95**tried, 0.95 / tried, 1 - min(0.05 * tried, 0.999)


EXERCISES = (
    Exercise(
        solution=verdict,
        inputs=races,
        slips={
            "That names whoever is ahead. With few seeds somebody always is; ask whether "
            "luck explains it.": lambda first, second, tried: "better" if second.mean() > first.mean() else "worse",
            "The seeds are the same: take the differences, seed by seed. The luck of a seed does not enter them.": (
                apart,
                lambda first, second, tried: strangers(first, second, t.ppf(1 - 0.025 / tried, 2 * len(first) - 2)),
                lambda first, second, tried: strangers(first, second, t.ppf(1 - 0.025 / tried, len(first) - 1)),
            ),
            "That is the interval for a spread that is known. With few seeds take Student's t.": (
                lambda first, second, tried: called(second - first, norm.ppf(1 - 0.025 / tried)),
                lambda first, second, tried: called(second - first, norm.ppf(0.975)),
                lambda first, second, tried: called(second - first, 1.96),
            ),
            "That is 1 - (1 - 0.05)^(1 / tried), for comparisons that are independent. 0.05 / tried is asked for.": (
                lambda first, second, tried: called(
                    second - first, t.ppf(1 - (1 - 0.95 ** (1 / tried)) / 2, len(first) - 1)
                )
            ),
            "That level falls with the number of comparisons. It has to rise.": tuple(
                lambda first, second, tried, level=level: called(
                    second - first, t.ppf((1 + level(tried)) / 2, len(first) - 1)
                )
                for level in (lambda n: falling(n)[0], lambda n: falling(n)[1], lambda n: falling(n)[2])
            ),
            "Not all of the comparisons are counted: this one is among them.": lambda first, second, tried: called(
                second - first, t.ppf(1 - 0.025 / max(tried - 1, 1), len(first) - 1)
            ),
            "That counts seeds. A call needs the differences and their spread.": lambda first, second, tried: (
                "better" if np.mean(second > first) > 0.5 else "worse" if np.mean(second < first) > 0.5 else "undecided"
            ),
            "Some calls are never made: an interval below 0 is a verdict too.": lambda first, second, tried: verdict(
                first, second, tried
            ).replace("worse", "undecided"),
        },
        hints=(
            "The differences, one per seed, are the data; compare their mean with so many standard errors.",
            "A level of 1 - 0.05 / tried leaves 0.025 / tried on each side.",
            "half = scipy.stats.t.ppf(1 - 0.025 / tried, S - 1) * differences.std(ddof=1) / sqrt(S)",
        ),
        exact=True,
    ),
)
