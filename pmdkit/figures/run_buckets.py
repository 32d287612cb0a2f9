"""What else depends on how hard a prompt is: PMD-mean's hidden brake, and how far a group can be believed."""

import numpy as np
from matplotlib.axes import Axes

from pmdkit.figures.run_axes import Rows, heading, known, line, numbers, pass_rate_axis, steps_axis
from pmdkit.figures.style import BLACK, BLUE, ORANGE, VERMILLION


def brake(ax: Axes, rows: Rows, gauges: Rows) -> None:
    """lambda/tau, by which the chi2 term raises the temperature near pi_old, beside tau itself.

    Over the steps where no bucket has it, and plain lambda of runs that wrote nothing else.
    """
    reading = r"the loss acts as if $\tau$ were larger by $\lambda/\tau$, where steps are small"
    if known(gauges, "theory_lambda_over_tau"):
        places = numbers(gauges, "bucket")
        ax.bar(places, numbers(gauges, "theory_lambda_over_tau"), 0.5, color=BLUE, label=r"$\lambda/\tau$, exact")
        ax.plot(
            places, numbers(gauges, "tau"), color=ORANGE, marker="_", ms=20, mew=2.5, linestyle="none", label=r"$\tau$"
        )
        pass_rate_axis(ax)
        ax.set_ylim(top=1.25 * ax.get_ylim()[1])  # room for the key
        ax.legend(handlelength=1.6, markerscale=0.75, loc="upper center", ncols=2)
    elif known(rows, "theory_lambda_over_tau"):
        line(ax, rows, "theory_lambda_over_tau", color=BLUE, marker="o", label=r"$\lambda/\tau$, exact")
        line(ax, rows, "tau", color=ORANGE, linestyle=(0, (5, 1.5)), label=r"$\tau$")
        steps_axis(ax)
        ax.legend()
    else:
        line(ax, rows, "theory_lambda", color=BLUE, marker="o")
        reading = r"the multiplier $\lambda$: PMD-mean adds $\lambda/2\tau$ times $\chi^2$ to $\tau$ times KL"
        steps_axis(ax)
    heading(ax, "How strong is the hidden brake?", reading)
    old = not known(rows, "theory_lambda_over_tau")
    ax.set_ylabel(r"$\lambda$ (reward units squared)" if old else "reward units")
    ax.set_ylim(bottom=0)


def belief(ax: Axes, gauges: Rows) -> None:
    """Where the prompts are, what the step left of a group, and in how many groups PMD-part's target is noise."""
    places, prompts = numbers(gauges, "bucket"), numbers(gauges, "prompts")
    ax.bar(places, prompts / prompts.sum(), 0.86, color="0.87", label="share of all prompts")
    question, reading = "How much of the old policy still counts?", r"effective: $1/(1+\chi^2)$ of the step"
    if known(gauges, "noise_share"):
        ax.bar(places, numbers(gauges, "noise_share"), 0.36, color=VERMILLION, label="noise for PMD-part")
        question, reading = (
            "Which groups can be believed?",
            "noise: too few right draws, PMD-part's target is over a nat off",
        )
    if known(gauges, "theory_noise_share"):
        heights = numbers(gauges, "theory_noise_share")
        ax.plot(places, heights, "s", color=BLACK, ms=6, mfc="none", label="noise to be expected")
    if known(gauges, "ess"):
        ax.plot(places, numbers(gauges, "ess"), "o", color=BLUE, label="effective after the step")
    heading(ax, question, reading)
    ax.set(ylabel="share", ylim=(0, 1.45), yticks=np.linspace(0, 1, 6))
    pass_rate_axis(ax)
    ax.legend(handlelength=1.2, fontsize=7, loc="upper center", ncols=2)  # in the room above 1
