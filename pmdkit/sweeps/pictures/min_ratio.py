"""The min-ratio figure in miniature: the smallest log-ratio of each step, PMD-mean against PMD-part."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import TITLES, look, style
from pmdkit.sweeps.pictures.panels import band, by_setting, curve, listed, say
from pmdkit.sweeps.statistics import Interval, mean_interval

METHODS = ("pmd-mean", "pmd-part")


def draw(table: dict[str, Any], sequence: dict[str, Any]) -> Drawing:
    """Minimum over the rows of a step of log pi_{t+1}/pi_t, against prompts answered.

    Source: arXiv:2602.05933, figure min_ratio.
    Differs: over all rows of the step, scored again after its last update; the paper takes the last mini-batch only.

    Args:
        table: record of the experiment tau.
        sequence: record of the experiment sequence, tau = 0.05.
    """
    swept, long = by_setting(table), by_setting(sequence)
    panels = {
        f"{table['env']}, tau {tau:g}": {method: swept[f"{method} tau={tau}"] for method in METHODS}
        for tau in (0.05, 0.5)
    }
    panels[f"{sequence['env']}, tau 0.05"] = {method: long[method] for method in METHODS}
    data, told = {}, []
    with style():
        figure = Figure(figsize=(7.4, 2.9))
        for ax, (heading, methods) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
            for method, runs in methods.items():
                x, seeds = curve(runs, "log_ratio_min")
                data[f"{heading} {method}"] = band(ax, x, seeds, TITLES[method], **look(method, marker=True))
                told.append(f"{heading}, {TITLES[method]}: {say(thirds(seeds, 0), 1)} to {say(thirds(seeds, 2), 1)}")
            ax.set(title=heading, xlabel="prompts answered (thousands)")
            ax.set_ylim(top=0.4)  # an interval of Student's t may reach above 0, a minimum does not
        figure.axes[0].set_ylabel("smallest log-ratio of the step (nats)")
        figure.axes[0].legend(loc="lower left")
    sentence = f"Smallest log-ratio of a step in nats, mean of the first third of training to the last: {listed(told)}."
    return Drawing(figure, f"Smallest log-ratio over training in three settings. {sentence}", sentence, data)


def thirds(seeds: Any, third: int) -> Interval:
    """Mean over the first (0), second or last (2) third of the curve."""
    return mean_interval(np.array([part.mean() for part in np.array_split(seeds, 3, axis=1)[third]]))
