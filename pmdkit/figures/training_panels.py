"""Figures 7 and 8 in miniature: how the runs behave besides the reward, and best-of and majority votes after them."""

import numpy as np
from matplotlib.figure import Figure

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import look, shades, style
from pmdkit.figures.toy_runs import SCALE, TASKS, Array, curve, ends, setting, title, told

METHODS = ("pmd-mean", "grpo", "gspo", "rloo")
UNITS = {"Avg@32": "draws", "Pass@32": "problems", "Maj@32": "problems"}
MEASURES = tuple(UNITS)
COLUMNS = {
    "pass_rate": "pass rate of the rollouts",
    "response_length": "response length (tokens)",
    "entropy": "entropy of a response (nats)",
}


def seven() -> Drawing:
    """Pass rate, response length and entropy over training, and Avg@32, Pass@32 and Maj@32 after it, on parity.

    Source: arXiv:2602.05933, figure results-7B.
    Differs: a toy task with a chain of thought; rewards {0,1}; no smoothing; the evaluation is that after training.
    Entropy is in nats per response, summed over its tokens.
    """
    data: dict[str, Array] = {}
    rows = [(title(name), name, setting("sequence", name), look(name, marker=True)) for name in METHODS]
    with style():
        figure = Figure(figsize=(7.6, 4.8))
        grid = figure.subplots(2, 3)
        for ax, (key, label) in zip(grid[0], COLUMNS.items(), strict=True):
            for text, name, of, looks in rows:
                data[f"{key} {name}"] = curve(ax, of, key, text, **looks)
            ax.set(xlabel="prompts answered (thousands)", title=label)
            ax.set_ylim(0.0, 1.03 if key == "pass_rate" else None)  # intervals of Student's t know no ends
        for ax, (which, measure) in zip(grid[1], enumerate(MEASURES), strict=True):
            for place, (_, name, of, looks) in enumerate(rows):
                data[f"{measure} {name}"] = ends(ax, place, np.array(of["measured"])[:, which], **looks)
            ax.set_yticks(range(len(rows)), [text for text, *_ in rows] if which == 0 else [""] * len(rows))
            ax.set(
                ylim=(len(rows) - 0.5, -0.5),
                xlim=(0.28, 1.04),
                title=f"{measure} after training",
                xlabel=f"share of {UNITS[measure]}",
            )
            ax.grid(axis="y", visible=False)
        figure.legend(*grid[0][0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
        figure.suptitle(f"{TASKS['parity']}, staleness 4; {SCALE}", fontsize=9)
    after = "; ".join(f"{title(name)} {told(data[f'Avg@32 {name}'])}" for name in METHODS)
    best = "; ".join(f"{title(name)} {told(data[f'Maj@32 {name}'])}" for name in METHODS)
    sentence = (
        f"Parity has two answers: guessing has a pass rate of 0.5 and nearly every problem falls to the best of 32. "
        "Avg@32 "
        f"after training: {after}. Maj@32: {best}. With 5 seeds the intervals overlap: nothing here ranks these "
        "methods."
    )
    alt = (
        "Six panels. Above, pass rate, response length in tokens and entropy in nats against thousands of prompts; "
        "below, "
        f"Avg@32, Pass@32 and Maj@32 after training with seeds as dots; {', '.join(map(title, METHODS))}. {sentence}"
    )
    return Drawing(figure, alt, sentence, data)


def eight() -> Drawing:
    """GRPO and PMD-mean at two temperatures a factor of ten apart, as for the 30B model, on modular sum.

    Source: arXiv:2602.05933, figure results-30B.
    Differs: a dense toy transformer; tau 0.005 and 0.05 on {0,1} are the paper's 0.01 and 0.1 on rewards of +-1. One
    token a response: there is no length to show. A mixture of experts comes with a run of the recipe starter-moe.
    """
    data: dict[str, Array] = {}
    dark, light = shades(2)
    rows = [
        (rf"PMD-mean, $\tau$ = {tau}", f"pmd-mean {tau}", setting("tau", f"pmd-mean tau={tau}"), looks)
        for tau, looks in (
            ("0.005", {"color": dark, "linestyle": "-", "marker": "o"}),
            ("0.05", {"color": light, "linestyle": "-", "marker": "v"}),
        )
    ]
    rows.append(("GRPO", "grpo", setting("training-curves", "grpo"), look("grpo", marker=True)))
    with style():
        figure = Figure(figsize=(7.6, 3.1))
        left, middle, right = figure.subplots(1, 3)
        for place, (text, name, of, looks) in enumerate(rows):
            data[f"pass_rate {name}"] = curve(left, of, "pass_rate", text, **looks)
            data[f"log_ratio_min {name}"] = curve(middle, of, "log_ratio_min", text, **looks)
            data[f"after {name}"] = ends(right, place, np.array(of["last"]), **looks)
        left.set(title="pass rate of the rollouts", xlabel="prompts answered (thousands)", ylim=(-0.03, 1.03))
        middle.set(title="smallest log-ratio of a step (nats)", xlabel="prompts answered (thousands)")
        right.set(title="pass rate after training", xlabel="share of draws", ylim=(len(rows) - 0.5, -0.5), yticks=[])
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3)
        figure.suptitle(f"{TASKS['modular-sum']}, staleness 16; {SCALE}", fontsize=9)
    after = "; ".join(
        f"{text.replace(chr(36), '').replace(chr(92), '')} {told(data[f'after {name}'], 3)}" for text, name, *_ in rows
    )
    sentence = (
        f"A dense toy transformer, not a mixture of experts. After training: {after}. Both temperatures learn, and "
        "GRPO "
        "with them; a factor of ten in tau hardly matters here, as in the paper's table."
    )
    alt = (
        "Three panels against thousands of prompts: pass rate, smallest log-ratio in nats, and the pass rate after "
        f"training with seeds as dots, for PMD-mean at two temperatures and GRPO. {sentence}"
    )
    return Drawing(figure, alt, sentence, data)
