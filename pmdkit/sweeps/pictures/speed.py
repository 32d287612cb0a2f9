"""The efficiency table in miniature: milliseconds per token, generation and update, by staleness."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import BLUE, ORANGE, style
from pmdkit.sweeps.pictures.panels import listed, say
from pmdkit.sweeps.statistics import mean_interval

PHASES = (("rollout", "generation", ORANGE, ""), ("update", "update", BLUE, "//"))


def draw(record: dict[str, Any]) -> Drawing:
    """Bars of CPU time per token.

    Source: arXiv:2602.05933, table efficiency_comparison: 0.0569 ms on-policy, 0.0126 at staleness 16, 4.5 times less.
    Differs: one CPU thread. The paper's gain comes from an engine that a small batch leaves idle; a thread is never.
    """
    runs = record["runs"]
    levels = sorted({run["staleness"] for run in runs})
    data, told = {}, []
    with style():
        figure = Figure(figsize=(7.0, 3.1))
        envs = list(dict.fromkeys(run["env"] for run in runs))
        for ax, env in zip(figure.subplots(1, len(envs)), envs, strict=True):
            own = [[run for run in runs if (run["env"], run["staleness"]) == (env, level)] for level in levels]
            bottom = np.zeros(len(levels))
            for phase, name, colour, hatch in PHASES:
                seeds = [np.array([run[f"ms_per_token_{phase}"] for run in group]) for group in own]
                data[f"{env} {name}"] = np.array([each.mean() for each in seeds])
                bars = {"label": name, "color": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0.5}
                ax.bar(range(len(levels)), data[f"{env} {name}"], 0.6, bottom, **bars)
                bottom = bottom + data[f"{env} {name}"]
            whole = [np.array([r["ms_per_token_rollout"] + r["ms_per_token_update"] for r in group]) for group in own]
            ends = [mean_interval(each) for each in whole]
            half = [0.0 if end.high is None else end.high - end.mean for end in ends]
            ax.errorbar(range(len(levels)), [e.mean for e in ends], half, fmt="none", ecolor="black", capsize=3)
            gain = mean_interval(whole[0] / whole[levels.index(16)])
            share = data[f"{env} generation"][0] / bottom[0]
            told.append(f"{env}: {say(gain)} times, generation being {share:.0%} of the cost on-policy")
            ax.set_xticks(range(len(levels)), [str(level) for level in levels])
            ax.set(xlabel="updates per rollout batch", title=env, ylim=(0, 1.35 * bottom.max()))
            ax.grid(axis="x", visible=False)
        figure.axes[0].set_ylabel("CPU milliseconds per token")
        figure.axes[-1].legend(loc="upper right", ncols=2)
        figure.suptitle("PMD-mean, one thread, 128 draws per update, bars: 95 % intervals over seeds")
    sentence = f"From staleness 1 to 16 a token gets cheaper by: {listed(told)}."
    return Drawing(figure, f"Cost of a token by staleness, generation and update stacked. {sentence}", sentence, data)
