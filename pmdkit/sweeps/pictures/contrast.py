"""Two settings of one method: curves, and the difference paired by seed. Used by clamp, half and baseline."""

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import BLUE, ORANGE, style
from pmdkit.sweeps.pictures.panels import band, by_setting, curve, dots, say, say_paired, values
from pmdkit.sweeps.statistics import paired

LOOKS: tuple[dict[str, Any], dict[str, Any]] = (
    {"color": BLUE, "linestyle": "-", "marker": "o"},
    {"color": ORANGE, "linestyle": (0, (5, 1.6)), "marker": "s"},
)


def contrast(record: Mapping[str, Any], names: tuple[str, str], heading: str) -> Drawing:
    """Pass rate over training of two settings, and their mean pass rates seed by seed.

    Args:
        record: of the experiment; its first two settings are drawn.
        names: what they are called.
        heading: over the figure.
    """
    first, second = list(by_setting(record).values())[:2]
    data = {}
    with style():
        figure = Figure(figsize=(7.0, 3.0))
        left, right = figure.subplots(1, 2, width_ratios=(1.6, 1))
        for name, runs, looks in zip(names, (first, second), LOOKS, strict=True):
            x, seeds = curve(runs, "pass_rate")
            data[name] = band(left, x, seeds, name, **looks)
        left.set(xlabel="prompts answered (thousands)", ylabel="pass rate of the rollouts")
        left.legend()
        pair = [values(runs, "pass_rate_mean") for runs in (first, second)]
        right.plot([0, 1], pair, color="0.7", linestyle="-", linewidth=0.8, zorder=1)
        ends = [dots(right, x, seeds, **looks) for x, (seeds, looks) in enumerate(zip(pair, LOOKS, strict=True))]
        right.set_xticks([0, 1], names)
        right.set(xlim=(-0.5, 1.5), ylabel="mean pass rate over training", title="a line for each seed")
        figure.suptitle(f"{heading}, toy {record['env']}; bands and bars: 95 % intervals")
    after = [values(runs, "pass_rate_last") for runs in (first, second)]
    sentence = (
        f"Mean pass rate over training: {names[0]} {say(ends[0], 3)}, {names[1]} {say(ends[1], 3)}; paired difference "
        f"{say_paired(paired(*pair), 3)}. After training the difference is {say_paired(paired(*after), 3)}."
    )
    return Drawing(figure, f"Pass rate over training, {names[0]} and {names[1]}. {sentence}", sentence, data)
