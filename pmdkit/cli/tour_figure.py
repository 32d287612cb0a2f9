"""The tour's last picture: where both updates end, one objective on all three tiers, and its first steps."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmdkit import theory
from pmdkit.envs.kinds import format_tau, make
from pmdkit.figures.style import BLUE, GREY, ORANGE, RIGHT, VERMILLION, WRONG, style
from pmdkit.run import Run

LOOKS = {
    "exactly": (BLUE, "-", "o", 4),
    "full expectation": (ORANGE, "--", "s", 8),
    "from draws": (VERMILLION, "-.", "^", 5),
}
TRANSFORMER = "small transformer"
LANGUAGE_MODEL = "language model"


def draw(runs: Mapping[str, Run], ends: Mapping[str, Run], method: str, tau: float) -> Figure:
    """Draw where one step ends, pass rates of tier 1, first-step log-ratios beside the theory, and tiers 2 and 3.

    Args:
        ends: by objective, a bandit run of one exact step from the same policy.
        runs: maps the keys of LOOKS to bandit runs of one environment, TRANSFORMER to a toy run, and LANGUAGE_MODEL to
            an LLM run.
        method: "pmd-mean" or "pmd-part", whose curve is the prediction.
        tau: temperature on rewards {0, 1}.
    """
    with style():
        figure = Figure(figsize=(10.0, 9.6))
        grid = figure.add_gridspec(3, 2, height_ratios=(0.8, 1, 1))
        two_ends(figure.add_subplot(grid[0, :]), ends)
        left, middle, right, last = (figure.add_subplot(grid[row, column]) for row in (1, 2) for column in (0, 1))
        curves(left, {name: runs[name] for name in LOOKS})
        left.set(xscale="log", xlabel="rollout batch", ylabel="pass rate, mean over problems")
        left.set_title("Tier 1: a table, three ways")
        left.legend(loc="lower right")
        first_steps(middle, {name: runs[name] for name in LOOKS}, method, tau)
        middle.set_title(f"One step, {format_tau(tau)}")
        middle.legend(loc="lower left", fontsize=7)
        for ax, name, title in (
            (right, TRANSFORMER, "Tier 2: a small transformer"),
            (last, LANGUAGE_MODEL, "Tier 3: a language model"),
        ):
            curves(ax, {name: runs[name]})
            ax.set(xlabel="rollout batch", ylabel="pass rate")
            ax.set_title(f"{title}, {runs[name].spec.name}")
    figure.set_label(
        "On top, the policy after one exact step of PMD-part, all on the best arm, and of PMD-mean, shared by the arms"
        " above average. Below it left, mean pass rate against rollout batch for the exact update, Newton on the"
        " expectation, and draws. Right of it, log-ratio of right and wrong responses after the first step against the"
        " pass rate before: points of the exact update and of Newton lie on the theory's curves, points from draws are"
        " near zero. Last, pass rate of a small transformer and of a language model against rollout batch."
    )
    return figure


def two_ends(ax: Axes, ends: Mapping[str, Run]) -> None:
    """Draw the policy after one step of each objective, over the arms by their reward."""
    for shift, (name, colour) in zip((-0.2, 0.2), (("pmd-part", VERMILLION), ("pmd-mean", BLUE)), strict=True):
        run = ends[name]
        reward = make(run.spec.env).reward[0]
        order, tau = np.argsort(reward), run.spec.objective["tau"]
        ax.bar(
            np.arange(len(order)) + shift, [float(run.policy[0][arm]) for arm in order], 0.4, color=colour, label=name
        )
    ax.set_xticks(range(len(order)), [f"{value:.1f}" for value in reward[order]])
    ax.set(xlabel="reward of the arm", ylabel="share of the policy", ylim=(0, 1.03))
    ax.set_title(f"One exact step of both updates from one policy, tau {tau:g}: they end in different places")
    ax.legend(loc="upper left")


def curves(ax: Axes, runs: Mapping[str, Run]) -> None:
    """Draw the pass rate of every step's rollouts, then the evaluation after the last step."""
    for name, run in runs.items():
        colour, dash, *_ = LOOKS.get(name, (BLUE, "-"))
        rates = [*(row["pass_rate"] for row in run.metrics), run.summary["pass_rate_last"]]
        ax.plot(np.arange(1, len(rates) + 1), rates, linestyle=dash, color=colour, label=name)
    ax.set(ylim=(0, 1.03))


def first_steps(ax: Axes, runs: Mapping[str, Run], method: str, tau: float) -> None:
    """Draw the log-ratios of the first step against the pass rate, with the theory's curves."""
    p = np.linspace(0.004, 0.996, 400)
    exact = theory.binary(p, tau, method)
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.plot(p, exact.log_ratio_pos, color=RIGHT, linestyle="-", label="right, theory")
    ax.plot(p, exact.log_ratio_neg, color=WRONG, linestyle="--", label="wrong, theory")
    for name, run in runs.items():
        _, _, marker, size = LOOKS[name]
        buckets = run.metrics[0]["gauge"]
        rates = [bucket["pass_rate"] for bucket in buckets]
        for key, colour in (("log_ratio_pos", RIGHT), ("log_ratio_neg", WRONG)):
            values = np.array([np.nan if bucket[key] is None else bucket[key] for bucket in buckets])
            face = "none" if name == "full expectation" else colour
            ax.plot(rates, values, marker, color=colour, markerfacecolor=face, markersize=size)
        face = "none" if name == "full expectation" else GREY
        ax.plot([], [], marker, color=GREY, markerfacecolor=face, markersize=size, label=f"first step {name}")
    ax.set(xlabel="pass rate of the problem before the step", ylabel=r"$\log\ \pi_{new}/\pi_{old}$, nats")
