"""The static picture of the simplex explorer: a step of both updates, solutions for every tau, KL and chi2 lines."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pmdkit import theory
from pmdkit.figures.style import BLACK, style
from pmdkit_lab.figures import simplex
from pmdkit_lab.figures.drawing import Drawing
from pmdkit_lab.figures.looks import COLOURS, TITLES, look
from pmdkit_lab.figures.solutions import policy_text

PI, REWARD, TAU = np.array([0.6, 0.3, 0.1]), np.array([0.0, 0.7, 1.0]), 0.2  # the explorer starts with the same values
TAUS = np.geomspace(100, 0.003, 200)
KL_LEVELS = np.array([0.02, 0.1, 0.3, 0.7, 1.4])  # nats
DOTS = (0, (1, 1.5))


def solutions() -> tuple[dict[str, Any], dict[str, Any]]:
    """One exact step of each update, and where one step ends at every tau, from pmdkit.theory."""
    solve = {"pmd-part": theory.pmd_part, "pmd-mean": theory.pmd_mean}
    steps = {method: update(PI, REWARD, TAU).probs for method, update in solve.items()}
    return steps, {method: update(PI, REWARD, TAUS).probs for method, update in solve.items()}


def draw_updates(ax: Axes, steps: Mapping[str, Any], sweeps: Mapping[str, Any]) -> list[Line2D]:
    """The triangle with the policy, both steps and both dotted lines; returns what a legend needs."""
    simplex.triangle(ax, [f"action {i + 1}\nreward {r:g}" for i, r in enumerate(REWARD)])
    for method, probs in steps.items():
        simplex.path(ax, sweeps[method], color=COLOURS[method], linewidth=1.2, linestyle=DOTS)
        simplex.path(ax, np.stack([PI, probs]), **look(method))
        marker = look(method, marker=True)["marker"]
        ax.plot(*simplex.to_xy(probs), marker, color=COLOURS[method], ms=8, mec="white", zorder=4)
    ax.plot(*simplex.to_xy(PI), "*", color=BLACK, ms=12, mec="white", zorder=4)
    handles = [Line2D([], [], **look(method, marker=True), label=TITLES[method]) for method in steps]
    return [*handles, Line2D([], [], color="0.4", linestyle=DOTS, linewidth=1.2, label=r"one step, any $\tau$")]


def draw() -> Drawing:
    """One exact step of each update over level lines of KL and chi2."""
    steps, sweeps = solutions()
    with style():
        figure = Figure(figsize=(5.6, 4.6))
        ax = figure.subplots()
        handles = draw_updates(ax, steps, sweeps)
        lines = simplex.contour(ax, lambda probs: theory.kl(probs, PI), KL_LEVELS, colors="0.5", linewidths=0.8)
        ax.clabel(lines, fmt="%g", fontsize=7, colors="0.35")
        simplex.contour(
            ax, lambda probs: theory.chi2(probs, PI), 2 * KL_LEVELS, colors="0.5", linewidths=0.8, linestyles=[DOTS]
        )
        handles += [
            Line2D([], [], color="0.5", label=r"equal KL from $\pi_t$ (nats)"),
            Line2D([], [], color="0.5", linestyle=DOTS, linewidth=0.8, label=r"equal $\chi^2$, twice the number"),
        ]
        figure.legend(handles=handles, loc="outside lower center", ncols=2)  # inside, it covers a side of the triangle
    value = {method: float(probs @ REWARD) for method, probs in steps.items()}
    lam = float(theory.pmd_mean(PI, REWARD, TAU).lam)
    alt = (
        "A triangle whose corners are three actions with rewards 0, 0.7 and 1. Around the policy (0.6, 0.3, 0.1), a "
        "star, lie level lines of KL and of chi-square; they agree near the star, and chi-square is steeper towards "
        f"the rarer actions. One step at tau = {TAU:g} ends at {policy_text(steps['pmd-part'])} for PMD-part and at "
        f"{policy_text(steps['pmd-mean'])} for PMD-mean. Dotted, the ends for every tau: PMD-part's go to the corner "
        f"of action 3, PMD-mean's to {policy_text(sweeps['pmd-mean'][-1])} on the side between actions 2 and 3."
    )
    sentence = (
        f"One step at τ = {TAU:g} takes the expected reward from {PI @ REWARD:.2f} to {value['pmd-part']:.2f} "
        f"(PMD-part) and {value['pmd-mean']:.2f} (PMD-mean). PMD-mean's hidden χ² penalty, of weight λ/(2τ) = "
        f"{lam / (2 * TAU):.2g}, keeps it nearer; as τ goes to 0 PMD-part becomes greedy and PMD-mean does not."
    )
    named = {f"step {method}": probs for method, probs in steps.items()}
    return Drawing(figure, alt, sentence, named | {f"sweep {method}": probs for method, probs in sweeps.items()})
