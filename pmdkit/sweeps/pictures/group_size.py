"""The group-size sweep: few prompts with many draws, or many prompts with few."""

from typing import Any

from matplotlib.figure import Figure

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import TITLES, style
from pmdkit.sweeps.pictures.panels import by_setting, listed, say
from pmdkit.sweeps.pictures.swept import numbers, swept


def draw(record: dict[str, Any]) -> Drawing:
    """Pass rate after training, and its mean over training, against the draws per prompt.

    Source: arXiv:2602.05933, section 4.2: PMD-part's target error needs n of the order of 1/p.
    Differs: the paper trains with 16 draws only. Here the draws per update are fixed: more per prompt, fewer prompts.
    """
    settings = by_setting(record)
    with style():
        figure = Figure(figsize=(7.0, 3.1))
        left, right = figure.subplots(1, 2, sharey=True)
        last = swept(left, settings, "schedule.group", "pass_rate_last")
        mean = swept(right, settings, "schedule.group", "pass_rate_mean")
        for ax, name in ((left, "evaluated after training"), (right, "mean over training")):
            ax.set(xlabel="draws per prompt $G$ (512 draws per update)", title=name)
        left.set_ylabel("pass rate")
        left.legend(loc="center right")
        figure.suptitle(rf"toy {record['env']}, $\tau$ = 0.05 on rewards {{0,1}}, dots: seeds, bars: 95 % intervals")
    told = [f"{TITLES[method]} with {group} draws {say(end)}" for (method, group), end in last.items()]
    sentence = f"Evaluated after training: {listed(told)}."
    over = listed([f"{TITLES[method]} with {group} draws {say(end)}" for (method, group), end in mean.items()])
    alt = f"Pass rate against draws per prompt. {sentence} Mean over training: {over}."
    return Drawing(figure, alt, sentence, numbers(last))
