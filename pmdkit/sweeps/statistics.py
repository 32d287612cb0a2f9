"""Means with intervals, and differences of pairs: Student's t, because a sweep has a handful of seeds."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

Array = NDArray[np.float64]

LEVEL = 0.95


@dataclass(frozen=True)
class Interval:
    """Attributes: mean; low, high: ends of the 95 % interval, None with a single value; count: of values."""

    mean: float
    low: float | None
    high: float | None
    count: int

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def mean_interval(values: Array) -> Interval:
    r"""The mean and its 95 % interval.

    $$ \bar x \pm t_{0.975,\,n-1}\, \frac{s}{\sqrt n} $$

    Differs: `figures.intervals.bootstrap` resamples seeds; with five of them its intervals are too short.
    Shapes: [n] to one Interval, in the units of the values.
    Watch: assumes that values scatter normally about their mean. A pass rate near 1 does not: the interval may pass 1.
    """
    count = len(values)
    if count == 0:
        raise ValueError("mean_interval got no values; expected at least one")
    mean = float(np.mean(values))
    if count == 1:
        return Interval(mean, None, None, 1)
    half = float(student.ppf((1 + LEVEL) / 2, count - 1) * np.std(values, ddof=1) / np.sqrt(count))
    return Interval(mean, mean - half, mean + half, count)


@dataclass(frozen=True)
class Paired:
    """Attributes: difference: over seeds; pairs; wins, ties: pairs in which the second is larger, or equal."""

    difference: Interval
    pairs: int
    wins: int
    ties: int


def paired(first: Array, second: Array, seeds: Array | None = None) -> Paired:
    """Second minus first, pair by pair: what the seed does to both cancels.

    Args:
        first, second: [n] values of the same seeds in the same order.
        seeds: [n] where a seed has several pairs, say one per task: its differences are averaged first, because they
            are not independent draws.
    """
    if len(first) != len(second):
        raise ValueError(f"paired got {len(first)} and {len(second)} values; expected one per seed in both")
    difference = second - first
    each = np.arange(len(difference), dtype=float) if seeds is None else seeds
    interval = mean_interval(seed_means(difference, each))
    return Paired(interval, len(difference), int((difference > 0).sum()), int((difference == 0).sum()))


def seed_means(values: Array, seeds: Array) -> Array:
    """[seeds] mean of the values of each seed."""
    return np.array([values[seeds == seed].mean() for seed in np.unique(seeds)])
