"""Two methods over a swept number: used by the pictures of tau and of the group size."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from pmdkit.figures.style import TITLES, look
from pmdkit.sweeps.pictures.panels import Array, Runs, dots, values
from pmdkit.sweeps.statistics import Interval

METHODS = ("pmd-mean", "pmd-part")


def swept(ax: Axes, settings: Mapping[str, Runs], option: str, metric: str) -> dict[tuple[str, float], Interval]:
    """A metric against an option on a logarithmic axis, every seed and the mean with its interval."""
    found: dict[tuple[str, float], Interval] = {}
    for side, method in zip((0.94, 1.06), METHODS, strict=True):
        runs = {r[0]["options"][option]: r for r in settings.values() if r[0]["options"]["objective.name"] == method}
        ticks = sorted(runs)
        shown = look(method, marker=True)
        for tick in ticks:
            found[method, tick] = dots(ax, tick * side, values(runs[tick], metric), **shown)
        means = [found[method, tick].mean for tick in ticks]
        ax.plot(np.array(ticks) * side, means, label=TITLES[method], **shown)
    ax.set_xscale("log")
    ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    ax.minorticks_off()
    ax.set_ylim(-0.02, 1.05)
    return found


def numbers(found: Mapping[tuple[str, float], Interval]) -> dict[str, Array]:
    """The means drawn, by method."""
    return {method: np.array([end.mean for (name, _), end in found.items() if name == method]) for method in METHODS}
