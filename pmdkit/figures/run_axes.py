"""What the panels of a run's picture share: headings, axes, and lines that leave gaps. Which panels: run.py."""

from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator, SymmetricalLogLocator
from numpy.typing import NDArray

from pmdkit.observe.gauge import EDGES

Rows = list[dict[str, Any]]

MARKERS = 25  # at most, along a line: more would hide it
SMALL = 7.0  # points, of the sentence under a heading


def heading(ax: Axes, title: str, reading: str) -> None:
    """A question, and under it in small letters how the panel is read."""
    lines = reading.count("\n") + 1
    ax.set_title(title, loc="left", fontweight="bold", pad=5 + 1.3 * SMALL * lines)
    ax.annotate(
        reading,
        (0, 1),
        xytext=(0, 4),
        xycoords="axes fraction",
        textcoords="offset points",
        fontsize=SMALL,
        linespacing=1.3,
        color="0.3",
        in_layout=False,  # the title above it keeps the room; a long sentence must not make its panel narrow
    )


def line(ax: Axes, rows: Rows, key: str, marker: str = "", **look: Any) -> None:
    """A metric over the steps, with a few markers; null leaves a gap."""
    every = -(-len(rows) // MARKERS)
    ax.plot(numbers(rows, "step"), numbers(rows, key), **({"linestyle": "-"} | look), marker=marker, markevery=every)


def numbers(rows: Rows, key: str) -> NDArray[np.float64]:
    """The values of a key, NaN where it is null or the run is older than the key."""
    return np.array([np.nan if row.get(key) is None else row[key] for row in rows], dtype=np.float64)


def known(rows: Rows, key: str) -> bool:
    """Whether a metric has a number at all."""
    return any(row.get(key) is not None for row in rows)


def varies(rows: Rows, key: str) -> bool:
    """Whether a metric has two different numbers."""
    return len({row[key] for row in rows if row.get(key) is not None}) > 1


def steps_axis(ax: Axes) -> None:
    """Whole steps only."""
    ax.set_xlabel("step")
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


def pass_rate_axis(ax: Axes) -> None:
    """A place of its own for every bucket of the gauge: on a straight axis the hard prompts would lie on each other."""
    count = len(EDGES) - 1
    names = [f"{100 * low:g}\N{EN DASH}{100 * high:g}" for low, high in pairwise(EDGES)]
    ax.set_xticks(range(count), names, fontsize=7.5)
    ax.set(xlim=(-0.6, count - 0.4), xlabel="prompts by pass rate before the step (%)")
    ax.grid(axis="x", visible=False)


def nats_axis(ax: Axes) -> None:
    """A zero line; the axis turns logarithmic away from 0 where one line would flatten the others.

    Targets can be hundreds of nats while a step moves a hundredth: on a linear axis the step could not be seen.
    """
    ax.axhline(0.0, color="0.6", linewidth=0.8, zorder=1)
    drawn = [np.asarray(line.get_ydata(), dtype=np.float64) for line in ax.get_lines()]
    values = [y[~np.isnan(y)] for y in drawn]
    sizes = [size for y in values if (size := float(np.abs(y).max(initial=0.0))) > 1e-6]
    if sizes and max(sizes) > 10 * min(sizes):
        linear = 10.0 ** max(np.floor(np.log10(min(sizes))), np.floor(np.log10(max(sizes))) - 4)
        ax.set_yscale("symlog", linthresh=linear, linscale=0.7)
        ax.yaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=linear))
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}".replace("-", "\N{MINUS SIGN}"))
        below, above = (max(((sign * y).max() for y in values if y.size), default=0.0) for sign in (-1, 1))
        ax.set_ylim(-2.5 * max(below, linear), 2.5 * max(above, linear))
