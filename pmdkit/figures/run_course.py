"""What a run did over its steps besides moving responses: progress, change of the policy, lengths, engine mismatch."""

from typing import Any

from matplotlib.axes import Axes

from pmdkit.figures.run_axes import Rows, heading, known, line, nats_axis, numbers, steps_axis
from pmdkit.figures.style import BLACK, BLUE, ORANGE

EVALUATED: dict[str, Any] = {"color": ORANGE, "markersize": 6, "markeredgecolor": "white", "zorder": 3}
DASHED = (0, (5, 1.5))


def progress(ax: Axes, rows: Rows, summary: dict[str, Any] | None) -> None:
    """What the step's rollouts scored, and the fixed evaluation before the first and after the last step."""
    rated = known(rows, "pass_rate")
    line(ax, rows, "pass_rate" if rated else "reward_mean", color=BLACK, marker="o", label="this step's rollouts")
    if summary is not None:
        kind = "pass_rate" if rated else "reward"
        ends = [numbers([summary], f"{kind}_{end}")[0] for end in ("first", "last")]
        ax.plot((0, summary["steps"]), ends, "D", label="evaluation", **EVALUATED)
    what = "share of right responses" if rated else "mean reward"
    heading(ax, "Does it learn?", f"{what} in each step and in a fixed evaluation")
    ax.set_ylabel("pass rate" if rated else "reward (reward units)")
    if rated:
        ax.set_ylim(-0.03, 1.03)
    steps_axis(ax)
    ax.legend(handlelength=1.6)


def movement(ax: Axes, rows: Rows) -> None:
    """How far each step went, and how much of the policy's spread is left."""
    line(ax, rows, "kl", color=BLUE, marker="o", label=r"KL($\pi_{new}$ || $\pi_{old}$)")
    line(ax, rows, "entropy", color=ORANGE, marker="D", linestyle=DASHED, label="entropy")
    nats_axis(ax)
    ax.set_ylim(bottom=0)
    heading(ax, "How much does the policy change?", "KL: distance of a step. Entropy: spread that is left to explore")
    ax.set_ylabel("nats")
    steps_axis(ax)
    ax.legend()


def lengths(ax: Axes, rows: Rows) -> None:
    """Mean length of the responses, and how many the budget cut off."""
    line(ax, rows, "response_length", color=BLUE, marker="o", label="mean length")
    heading(ax, "How long are the responses?", "mean over the responses of each step")
    ax.set_ylabel("tokens")
    if known(rows, "cut_off") and any(row.get("cut_off") for row in rows):
        line(ax, rows, "cut_off", color=ORANGE, marker="D", linestyle=DASHED, label="cut off (number)")
        ax.legend(loc="center right")
    ax.set_ylim(bottom=0)
    steps_axis(ax)


def mismatch(ax: Axes, rows: Rows) -> None:
    """How far engine and trainer differ on the same tokens under the same weights."""
    line(ax, rows, "mismatch_mean", color=BLUE, marker="o", label="mean per token")
    line(ax, rows, "mismatch_max", color=BLUE, marker="^", linestyle=":", label="largest per token")
    line(ax, rows, "mismatch_response", color=ORANGE, marker="D", linestyle=DASHED, label="mean per response")
    heading(ax, "Do engine and trainer agree?", "log-probabilities of the same tokens under the same weights")
    ax.set(ylabel="difference (nats)", yscale="log")
    low, high = ax.get_ylim()
    ax.set_ylim(low, 30 * high)  # room for the key
    ax.legend(loc="upper right")
    steps_axis(ax)
