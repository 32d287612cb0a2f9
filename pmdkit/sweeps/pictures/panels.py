"""What the pictures share: runs by setting, curves with a band, dots with an interval, and numbers in words."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray

from pmdkit.sweeps.statistics import Interval, Paired, mean_interval, paired

Array = NDArray[np.float64]
Runs = list[dict[str, Any]]


def by_setting(record: Mapping[str, Any]) -> dict[str, Runs]:
    """The finished runs of each setting, in the order of their seeds."""
    found = {}
    for label, options in record["settings"].items():
        runs = [run for run in record["runs"] if options.items() <= run["options"].items()]
        own = [run for run in runs if not extra(run, options, record["settings"].values())]
        found[label] = sorted((run for run in own if run["state"] == "finished"), key=lambda run: int(run["seed"]))
    return found


def extra(run: Mapping[str, Any], options: Mapping[str, Any], settings: Any) -> bool:
    """Whether a setting that says more than these options describes the run."""
    return any(options.items() < other.items() and other.items() <= run["options"].items() for other in settings)


def values(runs: Runs, metric: str) -> Array:
    """[seeds] a number of the summary."""
    return np.array([run["summary"][metric] for run in runs], dtype=np.float64)


def curve(runs: Runs, key: str) -> tuple[Array, Array]:
    """[points] prompts answered, in thousands, and [seeds, points] a column of the curves."""
    prompts = np.array(runs[0]["curve"]["step"]) * runs[0]["options"]["schedule.prompts"] / 1000
    return prompts, np.array([run["curve"][key] for run in runs], dtype=np.float64)


def band(ax: Axes, x: Array, seeds: Array, label: str, **look: Any) -> Array:
    """The mean over seeds with the 95 % interval of each point; returns the mean."""
    ends = [mean_interval(column) for column in seeds.T]
    mean = np.array([end.mean for end in ends])
    low, high = (np.array([getattr(end, side) for end in ends], dtype=np.float64) for side in ("low", "high"))
    ax.fill_between(x, low, high, color=look["color"], alpha=0.15, linewidth=0)
    every = max(1, len(x) // 8)
    ax.plot(x, mean, label=label, markevery=every, **look)
    return mean


def dots(ax: Axes, x: float, seeds: Array, **look: Any) -> Interval:
    """Every seed as a faint dot, the mean with its interval beside them."""
    end = mean_interval(seeds)
    colour = look.get("color", "black")
    ax.plot(np.full(len(seeds), x), seeds, "o", color=colour, alpha=0.35, markersize=3, markeredgewidth=0)
    half = 0.0 if end.high is None else end.high - end.mean
    ax.errorbar([x], [end.mean], [half], capsize=3, markersize=5, **{**look, "linestyle": "none"})
    return end


def differences(ax: Axes, settings: Mapping[str, Runs], metric: str, looks: Mapping[str, Any]) -> dict[str, Paired]:
    """Paired difference of each setting to the first, lying on its side."""
    names = list(settings)
    first = values(settings[names[0]], metric)
    found: dict[str, Paired] = {}
    for row, name in enumerate(names[1:]):
        seeds = values(settings[name], metric)
        found[name] = versus = paired(first, seeds)
        end = versus.difference
        half = 0.0 if end.high is None else end.high - end.mean
        look = looks[name]
        ax.plot(seeds - first, np.full(len(seeds), row), "o", color=look["color"], alpha=0.35, ms=3, mew=0)
        ax.errorbar([end.mean], [row], xerr=[half], capsize=3, markersize=5, **{**look, "linestyle": "none"})
    ax.axvline(0.0, color="0.4", linewidth=0.8)
    ax.set_yticks(range(len(names) - 1), names[1:])
    ax.set_ylim(len(names) - 1.5, -0.5)
    ax.grid(axis="y", visible=False)
    return found


def say(end: Interval, digits: int = 2) -> str:
    """`0.91 [0.88, 0.94]`."""
    if end.low is None or end.high is None:
        return f"{end.mean:.{digits}f}"
    return f"{end.mean:.{digits}f} [{end.low:.{digits}f}, {end.high:.{digits}f}]"


def say_paired(versus: Paired, digits: int = 2) -> str:
    """`-0.10 [-0.20, 0.00], larger on 1 of 5 seeds`."""
    return f"{say(versus.difference, digits)}, larger on {versus.wins} of {versus.pairs} seeds"


def listed(items: Sequence[str]) -> str:
    """`a; b; c`."""
    return "; ".join(items)
