"""The panels of a run's picture, each drawn on axes it is given. Which of them a run gets: run.py."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, SymmetricalLogLocator
from numpy.typing import NDArray

from pmdkit.figures.style import BLACK, BLUE, ORANGE, RIGHT, WRONG

Rows = list[dict[str, Any]]

MARKERS = 25  # at most, along a line: more would hide it
SIDES = (("pos", "right", RIGHT, "^"), ("neg", "wrong", WRONG, "v"))
EXACT: dict[str, Any] = {
    "color": BLACK,
    "linestyle": (0, (4, 2)),
    "linewidth": 1.0,
    "zorder": 3,
    "mfc": "none",
    "ms": 9,
}
EVALUATED: dict[str, Any] = {"color": ORANGE, "markersize": 6, "markeredgecolor": "white", "zorder": 3}


def progress(ax: Axes, rows: Rows, summary: dict[str, Any] | None) -> None:
    """What the step's rollouts scored, and the fixed evaluation before the first and after the last step."""
    rated = known(rows, "pass_rate")
    line(ax, rows, "pass_rate" if rated else "reward_mean", color=BLACK, marker="o", label="this step's rollouts")
    if summary is not None:
        kind = "pass_rate" if rated else "reward"
        ends = [numbers([summary], f"{kind}_{end}")[0] for end in ("first", "last")]
        ax.plot((0, summary["steps"]), ends, "D", label="evaluation", **EVALUATED)
    ax.set(title="progress", ylabel="pass rate" if rated else "reward (reward units)")
    if rated:
        ax.set_ylim(-0.03, 1.03)
    steps_axis(ax)
    ax.legend(handlelength=1.6)


def log_ratios(ax: Axes, rows: Rows) -> None:
    """Mean log-ratio of right and wrong responses in each step, beside the exact update of the objective."""
    shares, apart = [], any(known(rows, f"log_ratio_{key}") for key, *_ in SIDES)
    for key, name, colour, marker in SIDES:
        line(ax, rows, f"log_ratio_{key}", color=colour, marker=marker)
        line(ax, rows, f"theory_log_ratio_{key}", marker=marker if len(rows) == 1 else "", **EXACT)
        shares += reached(rows, key, name)
    if not apart:
        line(ax, rows, "log_ratio_max", color=RIGHT, marker="^", label="largest")
        line(ax, rows, "log_ratio_min", color=WRONG, marker="v", label="smallest")
        ax.legend()
    nats_axis(ax)
    title = "mean log-ratio of one step" if apart else "log-ratio of one step"
    ax.set_title(title + (f"\nmeasured / exact: {', '.join(shares)}" if shares else ""))
    ax.set_ylabel(r"$\log\,\pi_{new}/\pi_{old}$ (nats)")
    steps_axis(ax)


def by_pass_rate(ax: Axes, rows: Rows) -> None:
    """The gauge: each prompt step in the bucket of its pass rate before the step."""
    for key, _, colour, marker in SIDES:
        for name, looks in ((f"log_ratio_{key}", {"color": colour, "ms": 6}), (f"theory_log_ratio_{key}", EXACT)):
            ax.plot(numbers(rows, "pass_rate"), numbers(rows, name), **looks | {"marker": marker, "linestyle": "none"})
    nats_axis(ax)
    ax.set(title="mean log-ratio of one step, by pass rate", ylabel=r"$\log\,\pi_{new}/\pi_{old}$ (nats)")
    ax.set(xlim=(-0.04, 1.04), xlabel="pass rate of the prompt before the step")


def key_to_sides(figure: Figure, rows: Rows) -> None:
    """One legend for the panels of log-ratios."""
    handles = [
        Line2D([], [], color=colour, marker=marker, label=f"{name}, measured")
        for key, name, colour, marker in SIDES
        if known(rows, f"log_ratio_{key}")
    ]
    if any(known(rows, f"theory_log_ratio_{key}") for key, *_ in SIDES):
        handles.append(Line2D([], [], marker="^", label="exact update of each prompt alone", **EXACT))
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=3)


def multiplier(ax: Axes, rows: Rows) -> None:
    """Lambda, the strength of PMD-mean's hidden chi2 term."""
    line(ax, rows, "theory_lambda", color=BLUE, marker="o")
    ax.set(title=r"multiplier: $\lambda/2\tau$ weighs $\chi^2$", ylabel=r"$\lambda$ (reward units squared)")
    ax.set_ylim(bottom=0)
    steps_axis(ax)


def movement(ax: Axes, rows: Rows) -> None:
    """How far each step went, and how much of the policy's spread is left."""
    line(ax, rows, "kl", color=BLUE, marker="o", label=r"KL($\pi_{new}$ || $\pi_{old}$)")
    line(ax, rows, "entropy", color=ORANGE, marker="D", linestyle=(0, (5, 1.5)), label="entropy")
    ax.set(title="movement", ylabel="nats")
    steps_axis(ax)
    ax.legend()


def lengths(ax: Axes, rows: Rows) -> None:
    """Mean length of the responses, and how many the budget cut off."""
    line(ax, rows, "response_length", color=BLUE, marker="o", label="mean length")
    ax.set(title="responses", ylabel="tokens")
    ax.set_ylim(bottom=0)
    if known(rows, "cut_off") and any(row["cut_off"] for row in rows):
        line(ax, rows, "cut_off", color=ORANGE, marker="D", linestyle=(0, (5, 1.5)), label="cut off (number)")
    ax.legend()
    steps_axis(ax)


def mismatch(ax: Axes, rows: Rows) -> None:
    """How far engine and trainer differ on the same tokens under the same weights."""
    line(ax, rows, "mismatch_mean", color=BLUE, marker="o", label="mean per token")
    line(ax, rows, "mismatch_max", color=BLUE, marker="^", linestyle=":", label="largest per token")
    line(ax, rows, "mismatch_response", color=ORANGE, marker="D", linestyle=(0, (5, 1.5)), label="mean per response")
    ax.set(title="engine against trainer, same tokens", ylabel="log-probabilities differ by (nats)", yscale="log")
    low, high = ax.get_ylim()
    ax.set_ylim(low, 30 * high)  # room for the key
    ax.legend(loc="upper right")
    steps_axis(ax)


def line(ax: Axes, rows: Rows, key: str, marker: str = "", **look: Any) -> None:
    """A metric over the steps, with a few markers; null leaves a gap."""
    every = -(-len(rows) // MARKERS)
    ax.plot(numbers(rows, "step"), numbers(rows, key), **({"linestyle": "-"} | look), marker=marker, markevery=every)


def numbers(rows: Rows, key: str) -> NDArray[np.float64]:
    """The values of a key, NaN where it is null."""
    return np.array([np.nan if row[key] is None else row[key] for row in rows], dtype=np.float64)


def reached(rows: Rows, key: str, name: str) -> list[str]:
    """The share of the predicted log-ratio that the steps reached on average; nothing where nothing was to do."""
    measured, predicted = numbers(rows, f"log_ratio_{key}"), numbers(rows, f"theory_log_ratio_{key}")
    both = ~np.isnan(measured) & ~np.isnan(predicted)
    target = predicted[both].sum()
    return [f"{name} {measured[both].sum() / target:.2g}"] if abs(target) > 1e-9 else []


def known(rows: Rows, key: str) -> bool:
    """Whether a metric has a number at all."""
    return any(row.get(key) is not None for row in rows)


def steps_axis(ax: Axes) -> None:
    """Whole steps only."""
    ax.set_xlabel("step")
    ax.xaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 5, 10], integer=True, min_n_ticks=1))


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
