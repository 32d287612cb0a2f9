"""Toy runs that the training figures are drawn from: the stored curves, and how a curve with its interval is drawn.

The figures: main_result.py, min_ratio.py, training_panels.py. stored/toy.json has five seeds a setting, from the
records in benchmarks/results and, for entropy and majority votes, the same runs once more;
tests/figures/collect_toy_runs.py made it.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy.stats import t as student

from pmdkit.figures.style import TITLES

Array = NDArray[np.float64]
STORED = Path(__file__).parent / "stored"
TASKS = {"modular-sum": "modular sum, 1 token", "parity": "parity, up to 15 tokens"}
SCALE = "toy transformer, 5 seeds, bands and bars: 95 % intervals over seeds"


@cache
def stored() -> dict[str, Any]:
    """The file as it is: experiments, of them settings, of them lists per seed."""
    found: dict[str, Any] = json.loads((STORED / "toy.json").read_text(encoding="utf-8"))
    return found


def setting(experiment: str, label: str) -> dict[str, Any]:
    """One setting of an experiment."""
    found: dict[str, Any] = stored()[experiment]["settings"][label]
    return found


def interval(seeds: Array) -> tuple[Array, Array, Array]:
    """Mean over seeds [S, ...] with the ends of its 95 % interval by Student's t."""
    mean = seeds.mean(0)
    half = student.ppf(0.975, len(seeds) - 1) * seeds.std(0, ddof=1) / np.sqrt(len(seeds))
    return mean, mean - half, mean + half


def curve(ax: Axes, of: dict[str, Any], key: str, label: str, **look: Any) -> Array:
    """A column against prompts answered in thousands; returns [4, points]: prompts, mean, low, high."""
    prompts = np.array(of["prompts"]) / 1000
    mean, low, high = interval(np.array(of[key]))
    ax.fill_between(prompts, low, high, color=look["color"], alpha=0.15, linewidth=0)
    ax.plot(prompts, mean, label=label, markevery=max(1, len(prompts) // 8), **look)
    return np.stack([prompts, mean, low, high])


def ends(ax: Axes, place: float, seeds: Array, **look: Any) -> Array:
    """Shares on one row: the mean with its interval, cut at 0 and 1, the seeds below it; returns mean, low, high."""
    mean, low, high = (np.clip(value, 0.0, 1.0) for value in interval(seeds))
    ax.plot(
        seeds, np.full(len(seeds), place + 0.2), "o", color=look["color"], alpha=0.35, markersize=3, markeredgewidth=0
    )
    bar = [[float(mean - low)], [float(high - mean)]]
    ax.errorbar([float(mean)], [place], xerr=bar, capsize=3, markersize=5, **{**look, "linestyle": "none"})
    return np.array([mean, low, high])


def title(method: str) -> str:
    """A method as the figures call it."""
    return {**TITLES, "rloo": "RLOO, on-policy"}.get(method, method.upper())


def told(values: Array, digits: int = 2) -> str:
    """`0.91 [0.88, 0.94]` of mean, low, high."""
    mean, low, high = (f"{value:.{digits}f}" for value in values)
    return f"{mean} [{low}, {high}]"
