"""The tour's last picture: one objective three ways, and each step's log-ratios beside the theory."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from pmdkit import theory
from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import BLUE, GREY, ORANGE, RIGHT, VERMILLION, WRONG, style
from pmdkit.observe.units import say_tau

if TYPE_CHECKING:
    from pmdkit.training import Run

LOOKS = {"exactly": (BLUE, "-", "o"), "full expectation": (ORANGE, "--", "s"), "from draws": (VERMILLION, "-.", "^")}


def draw(runs: Mapping[str, "Run"], method: str, tau: float) -> Drawing:
    """Pass rate over rollout batches, and first-step log-ratios by pass rate, for the runs of a tour.

    Args:
        runs: keys of LOOKS to finished bandit runs of the same environment.
        method: "pmd-mean" or "pmd-part", whose curve is the prediction.
        tau: temperature on rewards {0, 1}.
    """
    data = {}
    with style():
        figure = Figure(figsize=(9.0, 3.8))
        left, right = figure.subplots(1, 2)
        for name, run in runs.items():
            colour, dash, _ = LOOKS[name]
            rates = np.array([row["pass_rate"] for row in run.metrics] + [run.summary["pass_rate_last"]])
            data[name] = rates
            left.plot(np.arange(1, len(rates) + 1), rates, dash, color=colour, label=name)
        left.set(xscale="log", ylim=(0, 1.03), xlabel="rollout batch", ylabel="pass rate, mean over problems")
        left.set_title("The same objective, three ways")
        left.legend(loc="lower right")

        p = np.linspace(0.004, 0.996, 400)
        exact = theory.binary(p, tau, method)
        right.axhline(0, color=GREY, linewidth=0.8)
        right.plot(p, exact.log_ratio_pos, color=RIGHT, label="right, theory")
        right.plot(p, exact.log_ratio_neg, color=WRONG, linestyle="--", label="wrong, theory")
        for name, run in runs.items():
            _, _, marker = LOOKS[name]
            buckets = run.metrics[0]["gauge"]
            rate = [b["pass_rate"] for b in buckets]
            for key, colour in (("log_ratio_pos", RIGHT), ("log_ratio_neg", WRONG)):
                values = [np.nan if b[key] is None else b[key] for b in buckets]
                data[f"{name} {key}"] = np.array(values)
                face = "none" if name == "full expectation" else colour
                size = {"exactly": 4, "full expectation": 8, "from draws": 5}[name]
                label = f"first step {name}" if key == "log_ratio_pos" else None
                right.plot(rate, values, marker, color=colour, markerfacecolor=face, markersize=size, label=label)
        right.set(xlabel="pass rate of the problem before the step", ylabel=r"$\log\ \pi_{new}/\pi_{old}$, nats")
        right.set_title(f"One step, {say_tau(tau)}")
        right.legend(loc="lower left", fontsize=7)
    sentence = (
        "Left: the exact update needs a few batches, draws need many. Right: a step pushes wrong answers down hard "
        "only where the pass rate is high; one small step from draws covers little of that way."
    )
    alt = (
        "Left, mean pass rate against rollout batch for the exact update, Newton on the full expectation and draws. "
        "Right, log-ratio of right and wrong responses after the first step against the pass rate before it: points of "
        "the exact update and of Newton lie on the theory's curves, points from draws are near zero."
    )
    return Drawing(figure, alt, sentence, data)
