"""Exercises of lesson 401: a loss of your own, what it secretly solves, and the verdict of a race."""

import numpy as np
from scipy.stats import norm, t

from pmdkit_course.exercises import Array, Exercise


def bounded_loss(log_ratio: Array, advantage: Array, tau: float, width: float) -> Array:
    """Huber's loss of the residual: a parabola up to the width, then its tangent."""
    size = np.abs(advantage - tau * log_ratio)
    return np.where(size <= width, size**2 / 2, width * (size - width / 2)) / tau


def implied_slope(ratio: Array, tau: float, cap: float) -> Array:
    """A response rests where its log ratio is its target; solve that for the reward."""
    return cap * tau * np.arctanh(np.log(ratio) / cap)


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
    """The interval of two samples that share nothing."""
    gap, half = second.mean() - first.mean(), factor * np.sqrt((first.var(ddof=1) + second.var(ddof=1)) / len(first))
    return "undecided" if abs(gap) <= half else ("better" if gap > 0 else "worse")


def apart(first: Array, second: Array, tried: int) -> str:
    """Two intervals that do not overlap."""
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


def residuals(rng: np.random.Generator) -> list[tuple[Array, Array, float, float]]:
    """Within and beyond the width, on both sides; one exactly on it; a width that nothing reaches."""
    cases = [
        (rng.normal(0, 2, size=8), rng.uniform(-1, 1, size=8), tau, width)
        for tau, width in ((0.05, 0.3), (0.5, 0.2), (0.2, 10.0))
    ]
    return [*cases, (np.array([0.0, 0.0, 1.0, -2.0]), np.array([0.5, -0.5, 0.5, 2.0]), 0.25, 0.5)]


EXERCISES = (
    Exercise(
        solution=bounded_loss,
        inputs=residuals,
        slips={
            "You clip the residual and square it: beyond the width that is a constant, so its gradient is 0. Those who "
            "are farthest off "
            "feel nothing.": lambda s, a, tau, width: np.clip(a - tau * s, -width, width) ** 2 / (2 * tau),
            "The width is applied to A / tau - s, in nats. The residual here is "
            "A - tau s, in reward units.": lambda s, a, tau, width: tau**2 * bounded_loss(s, a / tau, 1.0, width) / tau,
            "The line is too steep or too flat: it goes on with the slope that the parabola has there.": tuple(
                lambda s, a, tau, width, slope=slope: np.where(
                    np.abs(a - tau * s) <= width,
                    (a - tau * s) ** 2 / (2 * tau),
                    width**2 / (2 * tau) + slope(width) * (np.abs(a - tau * s) - width) / tau,
                )
                for slope in (lambda width: 1.0, lambda width: 2 * width, lambda width: width / 2)
            ),
            "That is smooth everywhere. Within the width the loss was to stay as it is.": lambda s, a, tau, width: (
                width**2 * (np.sqrt(1 + ((a - tau * s) / width) ** 2) - 1) / tau
            ),
            "You bound the advantage. What pushes is the residual, advantage less tau times log ratio.": (
                lambda s, a, tau, width: (np.clip(a, -width, width) - tau * s) ** 2 / (2 * tau)
            ),
            "That is a line everywhere. Within the width the loss was to stay a parabola.": lambda s, a, tau, width: (
                width * np.abs(a - tau * s) / tau
            ),
        },
        hints=(
            "Write r for A - tau s. Which line touches r^2 / 2 at r = width, and what is its slope?",
            "The tangent there is width * r - width^2 / 2. Use |r| for both sides, and divide all by tau.",
            "np.where(np.abs(r) <= width, r**2 / 2, width * (np.abs(r) - width / 2)) / tau",
        ),
    ),
    Exercise(
        solution=implied_slope,
        inputs=lambda rng: (
            [
                (np.exp(cap * rng.uniform(-0.95, 0.95, size=6)), tau, cap)
                for tau, cap in ((0.05, 3.0), (0.5, 1.0), (1.0, 0.2))
            ]
            + [(np.array([1.0, np.exp(1.0), np.exp(-1.0)]), 0.1, 2.0)]
        ),
        slips={
            "That is the slope of KL, the limit of a large cap. "
            "The cap must show: no reward reaches e^cap.": lambda z, tau, cap: tau * np.log(z),
            "tanh leads from the reward to the log ratio. You are asked the way back.": (
                lambda z, tau, cap: cap * tau * np.tanh(np.log(z) / cap),
                lambda z, tau, cap: cap * np.tanh(np.log(z) / (cap * tau)),
            ),
        },
        hints=(
            "At rest log z = cap * tanh(Delta / (cap * tau)). Solve for Delta.",
            "The inverse of tanh is np.arctanh.",
        ),
    ),
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
