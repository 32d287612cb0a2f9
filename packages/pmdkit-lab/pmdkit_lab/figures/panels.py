"""Drawing shared by several figures: curves with a band over seeds, and seeds as dots with an interval."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from pmdkit.stats import MeanInterval, mean_interval

Array = np.ndarray


def band(ax: Axes, x: Array, seeds: Array, label: str, **look: Any) -> Array:
    """Draw the mean over seeds [S, K] with the 95 % interval at each of K points; returns mean, low, high as [3, K]."""
    columns = np.stack([as_array(mean_interval(column)) for column in seeds.T], axis=1)
    mean, low, high = columns
    ax.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
    ax.plot(x, mean, label=label, markevery=max(1, len(x) // 8), **look)
    return columns


def interval_bar(ax: Axes, place: float, seeds: Array, ends: Array, *, aside: float = 0.0, **look: Any) -> None:
    """Draw, in a row at height `place`, every seed as a faint dot, and the mean with its interval.

    Args:
        seeds: [S] values.
        ends: [3] mean, low, high; the interval is left out where low is NaN.
        aside: how far below the row the dots of the seeds are drawn.
    """
    mean, low, high = (float(end) for end in ends)
    reach = [[0.0], [0.0]] if np.isnan(low) else [[mean - low], [high - mean]]
    dots = np.full(len(seeds), place + aside)
    ax.plot(seeds, dots, "o", color=look["color"], alpha=0.35, markersize=3, markeredgewidth=0)
    ax.errorbar([mean], [place], xerr=reach, capsize=3, markersize=5, **look | {"linestyle": "none"})


def as_array(end: MeanInterval) -> Array:
    """[3] mean, low, high; NaN for an end that a single value does not have."""
    return np.array([end.mean, end.low, end.high], dtype=np.float64)


def rows_of_names(ax: Axes, names: list[str]) -> None:
    """Lay out one row per name, the first on top, without grid lines between them."""
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
