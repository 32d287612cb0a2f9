"""The static picture of the rollout lab: targets of a lone success beside the truth, and the error by group size."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmdkit import theory
from pmdkit.figures.style import RIGHT, WRONG, style
from pmdkit_lab.figures.drawing import Drawing
from pmdkit_lab.figures.looks import COLOURS, TITLES, look

P, GROUP, TAU = 0.05, 16, 0.05  # the lab starts with the same values
NS = np.unique(np.geomspace(2, 1024, 55).round().astype(int))  # six an octave: it holds GROUP
METHODS = ("pmd-part", "pmd-mean")


def draw() -> Drawing:
    """Targets and exact errors, from pmdkit.theory."""
    reward = np.eye(GROUP)[0]  # one right response, the first
    targets = {method: theory.leave_one_out_targets(reward, TAU, method)[:2] for method in METHODS}
    best = {method: theory.binary(P, TAU, method) for method in METHODS}
    truth = {m: np.array([float(best[m].log_ratio_pos), float(best[m].log_ratio_neg)]) for m in METHODS}
    error = {method: theory.target_error(P, NS, TAU, method).mean for method in METHODS}
    with style():
        figure = Figure(figsize=(7.4, 3.6))
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1))
        for level, method in enumerate(METHODS):
            lane(left, 1.0 - level, targets[method], truth[method])
            left.annotate(
                TITLES[method], (0, 1.0 - level), (4, 30), xycoords=("axes fraction", "data"),
                textcoords="offset points", color=COLOURS[method], weight="bold",
            )  # fmt: skip
            right.plot(NS, error[method], **look(method), label=TITLES[method])
        left.set(xlim=(-1.12 / TAU, 1.12 / TAU), ylim=(-0.55, 1.6), xlabel="target log ratio (nats)", yticks=[])
        left.set_title(f"one right response among {GROUP}: discs are targets, bars the truth")
        left.spines["left"].set_visible(False)
        right.axvline(GROUP, color="0.6", linewidth=0.8, linestyle=":")
        right.set(xscale="log", yscale="log", xlabel="responses per prompt $n$")
        right.set_xticks([2, 8, 32, 128, 512], ["2", "8", "32", "128", "512"])
        right.minorticks_off()
        right.set_title("mean squared target error (nats$^2$), exact")
        right.legend()
    at = {method: float(error[method][NS == GROUP][0]) for method in METHODS}
    crossing = int(NS[np.argmax(error["pmd-part"] < error["pmd-mean"])])
    part, mean = truth["pmd-part"], truth["pmd-mean"]
    alt = (
        f"Two panels, pass rate p = {P:g}, tau = {TAU:g} on rewards 0 and 1. Left, a group of {GROUP} with one right "
        f"response, in nats: its target is {1 / TAU:g} for both methods, the truth is {part[0]:.1f} for PMD-part and "
        f"{mean[0]:.1f} for PMD-mean. Right, the expected squared error of a group's targets against its size: "
        f"PMD-part's falls to {error['pmd-part'][-1]:.2g}, PMD-mean's to {error['pmd-mean'][-1]:.0f}; they cross "
        f"near n = {crossing}."
    )
    sentence = (
        f"A lone right response is told to grow by 1/τ = {1 / TAU:g} nats; the exact updates want {part[0]:.1f} "
        f"(PMD-part) and {mean[0]:.1f} (PMD-mean). Over all groups of {GROUP} the expected squared error is "
        f"{at['pmd-part']:.0f} nats² for PMD-part, {at['pmd-mean']:.0f} for PMD-mean, and equal near n = {crossing}."
    )
    data = {f"target {method}": values for method, values in targets.items()}
    data |= {f"truth {method}": values for method, values in truth.items()}
    return Drawing(figure, alt, sentence, data | {f"error {method}": values for method, values in error.items()})


def lane(ax: Axes, y: float, target: np.ndarray, truth: np.ndarray) -> None:
    """Right above the line, wrong below: a bar at the truth, a disc at the target, their distance dotted."""
    ax.axhline(y, color="0.5", linewidth=0.8)
    for here, goal, colour, sign, size in zip(target, truth, (RIGHT, WRONG), (1, -1), (5, 10), strict=True):
        ax.plot([goal, goal], [y, y + 0.36 * sign], color=colour, linewidth=2, linestyle="-")
        ax.plot([here, goal], [y + 0.18 * sign] * 2, color=colour, linewidth=1, linestyle=":")
        ax.plot(here, y + 0.18 * sign, "o", color=colour, ms=size, mec="white")
        words = f"{'right' if sign > 0 else 'wrong'}, truth {goal:.1f}".replace("-", "−")
        ax.annotate(
            words, (goal, y + 0.36 * sign), (0, 2 * sign), textcoords="offset points", ha="center",
            va="bottom" if sign > 0 else "top", fontsize=8,
        )  # fmt: skip
