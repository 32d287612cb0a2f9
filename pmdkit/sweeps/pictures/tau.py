"""The temperature sweep: PMD-mean and PMD-part over four decades of tau."""

from typing import Any

from matplotlib.figure import Figure

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import TITLES, style
from pmdkit.sweeps.pictures.panels import by_setting, listed, say
from pmdkit.sweeps.pictures.swept import numbers, swept


def draw(record: dict[str, Any]) -> Drawing:
    """Pass rate after training, and its mean over training, against tau.

    Source: arXiv:2602.05933, the claim that PMD-part is unstable "even with a much larger tau" (section 6).
    Differs: the paper shows single runs at tau from 0.005 to 0.1 on rewards of +-1, twice the tau on {0,1}.
    """
    settings = by_setting(record)
    with style():
        figure = Figure(figsize=(7.0, 3.1))
        left, right = figure.subplots(1, 2, sharey=True)
        last = swept(left, settings, "objective.tau", "pass_rate_last")
        mean = swept(right, settings, "objective.tau", "pass_rate_mean")
        for ax, name in ((left, "evaluated after training"), (right, "mean over training")):
            ax.set(xlabel=r"$\tau$ on rewards {0,1} (twice that on ±1)", title=name)
        left.set_ylabel("pass rate")
        right.legend(loc="lower right")
        figure.suptitle(f"toy {record['env']}, dots: seeds, bars: 95 % intervals")
    told = [f"{TITLES[method]} at tau {tau:g} {say(end)}" for (method, tau), end in mean.items()]
    best = max(mean, key=lambda key: mean[key].mean)
    sentence = (
        f"Mean pass rate over training: {listed(told)}. The largest mean is that of {TITLES[best[0]]} at tau = "
        f"{best[1]:g}."
    )
    after = listed([f"{TITLES[method]} at tau {tau:g} {say(end)}" for (method, tau), end in last.items()])
    alt = f"Pass rate against tau for PMD-mean and PMD-part. {sentence} After training: {after}."
    return Drawing(figure, alt, sentence, numbers(mean))
