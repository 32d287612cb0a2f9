"""How far a step moved right and wrong responses, over the steps and by pass rate, beside the exact update."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from pmdkit.figures.run_axes import Rows, heading, known, line, nats_axis, numbers, pass_rate_axis, steps_axis
from pmdkit.figures.style import BLACK, RIGHT, WRONG

SIDES = (("pos", "right", RIGHT, "^"), ("neg", "wrong", WRONG, "v"))
EXACT: dict[str, Any] = {
    "color": BLACK,
    "linestyle": (0, (4, 2)),
    "linewidth": 1.0,
    "zorder": 3,
    "mfc": "none",
    "ms": 9,
}
LABEL = r"$\log\,\pi_{new}/\pi_{old}$ (nats)"


def log_ratios(ax: Axes, rows: Rows) -> None:
    """Mean log-ratio of right and wrong responses in each step, beside the exact update of the objective."""
    apart = any(known(rows, f"log_ratio_{key}") for key, *_ in SIDES)
    for key, _, colour, marker in SIDES:
        line(ax, rows, f"log_ratio_{key}", color=colour, marker=marker)
        line(ax, rows, f"theory_log_ratio_{key}", marker=marker if len(rows) == 1 else "", **EXACT)
    if not apart:
        line(ax, rows, "log_ratio_max", color=RIGHT, marker="^", label="largest")
        line(ax, rows, "log_ratio_min", color=WRONG, marker="v", label="smallest")
        ax.legend()
    nats_axis(ax)
    shares = reached(rows)
    reading = "how much likelier it made a response (+1 nat: 2.7 times)"
    if shares:
        told = ", ".join(f"{name} {percent(share)}" for name, share in shares.items())
        reading += f"\nmeasured / exact: {told} of the way"
    heading(ax, "How far does one step go?", reading)
    ax.set_ylabel(LABEL)
    steps_axis(ax)


def by_pass_rate(ax: Axes, gauges: Rows) -> None:
    """The gauge: each prompt step in the bucket of its pass rate before the step."""
    for key, _, colour, marker in SIDES:
        for name, looks in ((f"log_ratio_{key}", {"color": colour, "ms": 6}), (f"theory_log_ratio_{key}", EXACT)):
            places, heights = numbers(gauges, "bucket"), numbers(gauges, name)
            ax.plot(places, heights, **looks | {"marker": marker, "linestyle": "none"})
    nats_axis(ax)
    heading(ax, "Which prompts move?", "hard prompts left, easy ones right; means over all steps")
    ax.set_ylabel(LABEL)
    pass_rate_axis(ax)


def key_to_sides(ax: Axes, rows: Rows) -> None:
    """One legend for the panels of log-ratios."""
    handles = [
        Line2D([], [], color=colour, marker=marker, label=f"{name} responses, measured")
        for key, name, colour, marker in SIDES
        if known(rows, f"log_ratio_{key}")
    ]
    if any(known(rows, f"theory_log_ratio_{key}") for key, *_ in SIDES):
        handles.append(Line2D([], [], marker="^", label="exact update of each prompt alone", **EXACT))
    if handles:
        ax.legend(handles=handles, loc="center", ncols=3)


def reached(rows: Rows) -> dict[str, float]:
    """The share of the predicted log-ratio that the steps reached on average; nothing where nothing was to do."""
    shares = {}
    for key, name, *_ in SIDES:
        measured, predicted = numbers(rows, f"log_ratio_{key}"), numbers(rows, f"theory_log_ratio_{key}")
        both = ~np.isnan(measured) & ~np.isnan(predicted)
        target = float(predicted[both].sum())
        if abs(target) > 1e-9:
            shares[name] = float(measured[both].sum()) / target
    return shares


def percent(share: float) -> str:
    """Two digits of a share."""
    number = f"{100 * share:.2g}" if abs(share) < 0.995 else f"{100 * share:.0f}"
    return f"{number}\N{NO-BREAK SPACE}%".replace("-", "\N{MINUS SIGN}")
