"""Exercises of lesson 401: a loss of your own, what it secretly solves, and the verdict of a race."""

import numpy as np
from scipy.stats import norm, t

from pmdkit_course.exercises import Array, Exercise


def bounded_loss(log_ratio: Array, advantage: Array, tau: float, width: float) -> Array:
    """Huber's loss of the residual: a parabola up to the width, then its tangent."""
    size = np.abs(advantage - tau * log_ratio)
    return np.where(size <= width, size**2 / 2, width * (size - width / 2)) / tau


def jumping(log_ratio: Array, advantage: Array, tau: float, width: float) -> Array:
    """A line through the origin in place of the tangent."""
    size = np.abs(advantage - tau * log_ratio)
    return np.where(size <= width, size**2 / 2, width * size) / tau


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


def apart(first: Array, second: Array, tried: int) -> str:
    """Two intervals that do not overlap."""
    n = len(first)
    halves = [t.ppf(1 - 0.025 / tried, n - 1) * x.std(ddof=1) / np.sqrt(n) for x in (first, second)]
    gap = second.mean() - first.mean()
    return "undecided" if abs(gap) <= sum(halves) else ("better" if gap > 0 else "worse")


def races(rng: np.random.Generator) -> list[tuple[Array, Array, int]]:
    """Races of which each tells two ways to judge apart: by how many standard errors the arms differ.

    Among them a clear win, a clear loss, a lead that is luck, and one that is only luck after ten comparisons.
    """
    cases = []
    for seeds, tried, errors in (
        (5, 1, 9.0),
        (5, 1, -9.0),
        (5, 1, 1.0),
        (5, 1, -1.0),
        (5, 1, 2.3),
        (8, 10, 3.0),
        (8, 10, 6.0),
        (3, 4, 3.0),
    ):
        noise = rng.normal(size=seeds)
        noise = (noise - noise.mean()) / noise.std(ddof=1)
        luck = rng.normal(0.7, 0.2, size=seeds)  # of the seed, in both runs
        cases.append((luck, luck + 0.02 * (noise + errors / np.sqrt(seeds)), tried))
    return cases


def residuals(rng: np.random.Generator) -> list[tuple[Array, Array, float, float]]:
    """Within and beyond the width, on both sides; one exactly on it; a width that nothing reaches."""
    cases = [
        (rng.normal(0, 2, size=8), rng.uniform(-1, 1, size=8), tau, width)
        for tau, width in ((0.05, 0.3), (0.5, 0.2), (0.2, 10.0))
    ]
    return [*cases, (np.array([0.0, 0.0, 1.0, -2.0]), np.array([0.5, -0.5, 0.5, 2.0]), 0.25, 0.5)]


EXERCISES = (
    Exercise(
        id="401.1",
        title="a loss that cannot shout",
        task=(
            "PMD-mean's loss is $(A - \\tau s)^2 / 2\\tau$ with the log ratio $s$, so the push on a response is its "
            "residual $A - \\tau s$, however large. Bound it: keep the loss where the residual is at most `width` in "
            "size, and let it go on as a *straight line* beyond, with no jump and no kink. Then no push exceeds "
            "`width`, and none is forgotten."
        ),
        docstring="PMD-mean's loss with bounded pushes, [N]; log_ratio [N] in nats, else rewards.",
        solution=bounded_loss,
        inputs=residuals,
        slips={
            "At the width your loss jumps from width^2 / 2 to width^2. The line must meet the parabola: subtract what "
            "makes it its tangent.": jumping,
            "You clip the residual and square it: beyond the width that is a constant, so its gradient is 0. Those who "
            "are farthest off "
            "feel nothing.": lambda s, a, tau, width: np.clip(a - tau * s, -width, width) ** 2 / (2 * tau),
            "The width is applied to A / tau - s, in nats. The residual here is "
            "A - tau s, in reward units.": lambda s, a, tau, width: tau**2 * bounded_loss(s, a / tau, 1.0, width) / tau,
            "The 1 / tau is missing: without it the push "
            "is tau times as large as PMD-mean's.": lambda s, a, tau, width: tau * bounded_loss(s, a, tau, width),
            "That is PMD-mean itself; nothing is bounded.": lambda s, a, tau, width: (a - tau * s) ** 2 / (2 * tau),
            "Twice too much. The parabola is residual^2 "
            "/ (2 tau), and the line continues that one.": lambda s, a, tau, width: 2 * bounded_loss(s, a, tau, width),
        },
        hints=(
            "Write r for A - tau s. Which line touches r^2 / 2 at r = width, and what is its slope?",
            "The tangent there is width * r - width^2 / 2. Use |r| for both sides, and divide all by tau.",
            "np.where(np.abs(r) <= width, r**2 / 2, width * (np.abs(r) - width / 2)) / tau",
        ),
    ),
    Exercise(
        id="401.2",
        title="what does a capped target solve?",
        task=(
            "An objective regresses the log ratio on the target $c\\,\\tanh(\\Delta / c\\tau)$, where $\\Delta$ is the "
            "reward minus the mean and $c$ is `cap`. Where normalisation costs nothing, a response rests where its log "
            "ratio is its target. Read off the regulariser: which reward above the mean, $f'(z)$, does a response need "
            "to rest at ratio $z$?"
        ),
        docstring="f' of a capped target, [N], reward units; ratio [N] within e^-cap and e^cap.",
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
            "tanh leads from the reward to the log ratio. You are asked the way back.": lambda z, tau, cap: (
                cap * tau * np.tanh(np.log(z) / cap)
            ),
            "That is Delta / (cap tau), without units. f' is a reward.": lambda z, tau, cap: np.arctanh(
                np.log(z) / cap
            ),
            "The target is one of the log ratio. z - 1 is its first term only.": lambda z, tau, cap: (
                cap * tau * np.arctanh(np.clip((z - 1) / cap, -0.999, 0.999))
            ),
            "For ratios near 1 your slope is tau log z / cap; "
            "with a large cap it should be KL's, tau log z.": lambda z, tau, cap: tau * np.arctanh(np.log(z) / cap),
        },
        hints=(
            "At rest log z = cap * tanh(Delta / (cap * tau)). Solve for Delta.",
            "The inverse of tanh is np.arctanh.",
        ),
        difficulty=3,
    ),
    Exercise(
        id="401.3",
        title="the verdict of a race",
        task=(
            "`first` and `second` are scores of two methods with the same seeds; this is one of `tried` comparisons "
            'that you made. Say `"better"` or `"worse"` of the second only if 0 is outside the paired interval by '
            'Student\'s t, at a level that all comparisons share: $1 - 0.05 / \\text{tried}$. Say `"undecided"` '
            "otherwise."
        ),
        docstring="Of second against first, [S] each, paired by seed, one of `tried` comparisons.",
        solution=verdict,
        inputs=races,
        slips={
            "That names whoever is ahead. With few seeds somebody always is; ask whether "
            "luck explains it.": lambda first, second, tried: "better" if second.mean() > first.mean() else "worse",
            "You made several comparisons. Of ten at 95 % luck wins one or more in 40 % of "
            "cases; share the 5 %.": lambda first, second, tried: called(second - first, t.ppf(0.975, len(first) - 1)),
            "You ask whether two intervals overlap. The seeds are the same: look at the differences; the luck of a "
            "seed does not enter them.": apart,
            "That is the interval for a spread that is known. With few "
            "seeds take Student's t.": lambda first, second, tried: called(second - first, norm.ppf(1 - 0.025 / tried)),
        },
        hints=(
            "The differences, one per seed, are the data; compare their mean with so many standard errors.",
            "A level of 1 - 0.05 / tried leaves 0.025 / tried on each side.",
            "half = scipy.stats.t.ppf(1 - 0.025 / tried, S - 1) * differences.std(ddof=1) / sqrt(S)",
        ),
        difficulty=3,
        exact=True,
    ),
)
