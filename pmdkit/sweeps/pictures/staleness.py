"""Pass rate after a fixed number of updates, against how many of them share a rollout batch."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import look, style
from pmdkit.sweeps.pictures.panels import by_setting, dots, listed, say, values
from pmdkit.sweeps.pictures.training_curves import title

PANELS = (("pass_rate_last", "evaluated after training"), ("pass_rate_mean", "mean over training"))


def draw(record: dict[str, Any]) -> Drawing:
    """PMD-mean and GRPO by staleness, the number of updates held fixed.

    Source: arXiv:2602.05933, table main-results (staleness 1 and 16) and section 6.
    Differs: levels 4 and 64; the paper gives GRPO at 16 only and calls RLOO at 1 on-policy. What a token costs:
    speed.py.
    Watch: the mean over training of a rollout batch that is one fifth of the whole begins with a fifth at chance.
    """
    settings = by_setting(record)
    data, told = {}, []
    with style():
        figure = Figure(figsize=(7.0, 3.1))
        for ax, (metric, heading) in zip(figure.subplots(1, 2, sharey=True), PANELS, strict=True):
            for method, shift in (("pmd-mean", 0.94), ("grpo", 1.06)):
                levels = sorted(int(label.split()[1]) for label in settings if label.split()[0] == method)
                looks = look(method, marker=True)
                ends = [dots(ax, k * shift, values(settings[f"{method} {k}"], metric), **looks) for k in levels]
                data[f"{method} {metric}"] = np.array([end.mean for end in ends])
                ax.plot(np.array(levels) * shift, data[f"{method} {metric}"], label=title(method), **looks)
                if metric == "pass_rate_last":
                    told += [f"{title(method)} at {k} {say(end)}" for k, end in zip(levels, ends, strict=True)]
            ax.set(xscale="log", xlabel="updates per rollout batch", title=heading, ylim=(-0.02, 1.05))
            ax.set_xticks([1, 4, 16, 64], ["1", "4", "16", "64"])
            ax.minorticks_off()
        ax.legend(loc="lower left")
        figure.axes[0].set_ylabel("pass rate")
        figure.suptitle(f"toy {record['env']}, 320 updates of 512 draws, dots: seeds, bars: 95 % intervals")
    sentence = f"Pass rate after 320 updates, by updates per rollout batch: {listed(told)}."
    return Drawing(figure, f"Pass rate against staleness for PMD-mean and GRPO. {sentence}", sentence, data)
