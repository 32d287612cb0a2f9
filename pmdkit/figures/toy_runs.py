"""Runs that the training figures are drawn from: the stored curves or others, and how a curve is drawn.

The figures: main_result.py, min_ratio.py, training_panels.py, starter_runs.py. stored/toy.json has five seeds a
setting, from the records in benchmarks/results and, for entropy and majority votes, the same runs once more;
tests/figures/collect_toy_runs.py made it, collect_starter_runs.py beside it the other file.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from scipy.stats import t as student

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import GREY, TITLES

Array = NDArray[np.float64]
STORED = Path(__file__).parent / "stored"
TASKS = {"modular-sum": "modular sum, 1 token", "parity": "parity, up to 15 tokens"}
SCALE = "toy transformer, 5 seeds, bands and bars: 95 % intervals over seeds"
OTHERS: dict[str, Any] = {}  # experiments to draw in place of the stored ones, see `drawn_from`


@cache
def stored(scale: str = "toy") -> dict[str, Any]:
    """A file as it is: experiments, of them settings, of them lists per seed."""
    found: dict[str, Any] = json.loads((STORED / f"{scale}.json").read_text(encoding="utf-8"))
    return found


def setting(experiment: str, label: str) -> dict[str, Any]:
    """One setting of an experiment; that of language models is called starter, as its file is."""
    runs = OTHERS or stored("starter" if experiment == "starter" else "toy")
    found: dict[str, Any] = runs[experiment]["settings"][label]
    return found


def drawn_from(runs: Mapping[str, Any], draw: Callable[[], Drawing]) -> tuple[Drawing, int]:
    """A training figure drawn from other runs, and how many seeds they have.

    Args:
        runs: experiments in the form of the stored ones, all that the figure reads; at least two seeds each.
        draw: of main_result.py, min_ratio.py or training_panels.py.
    """
    counts = {len(of["seeds"]) for experiment in runs.values() for of in experiment["settings"].values()}
    if len(counts) != 1 or min(counts) < 2:
        raise ValueError(f"the runs have {sorted(counts)} seeds; expected one number of seeds, at least 2, everywhere")
    (seeds,) = counts
    OTHERS.update(runs)
    try:
        drawing = draw()
    finally:
        OTHERS.clear()
    figure = drawing.figure
    figure.suptitle(figure.get_suptitle().replace(SCALE, scale(seeds)), fontsize=9)
    return drawing, seeds


def scale(seeds: int) -> str:
    """What stands above a training figure."""
    return SCALE.replace("5 seeds", f"{seeds} seeds")


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


def apart(ax: Axes, rows: Sequence[tuple[str, dict[str, Any], dict[str, Any]]], which: int, key: str) -> Array:
    """One setting of several with its band, the means of the others thin and grey behind it; returns as `curve`.

    Args:
        ax: its panel.
        rows: label, runs and look of every setting.
        which: of them is drawn.
        key: column of the curves.
    """
    for place, (_, of, _) in enumerate(rows):
        if place != which:
            ax.plot(np.array(of["prompts"]) / 1000, np.mean(of[key], 0), "-", color=GREY, alpha=0.45, linewidth=0.9)
    label, of, looks = rows[which]
    return curve(ax, of, key, label, **looks)


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
