"""Figures 7 and 8 in miniature: how the runs behave besides the reward, and best-of and majority votes after them."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import look, shades, style
from pmdkit.figures.toy_runs import TASKS, Array, apart, ends, scale, setting, title, told

METHODS = ("pmd-mean", "grpo", "gspo", "rloo")
UNITS = {"Avg@32": "draws", "Pass@32": "problems", "Maj@32": "problems"}
MEASURES = tuple(UNITS)
COLUMNS = {
    "pass_rate": "pass rate of\nthe rollouts",
    "response_length": "response length\n(tokens)",
    "entropy": "entropy of a\nresponse (nats)",
}
PROMPTS = "prompts answered (thousands)"
Row = tuple[str, dict[str, Any], dict[str, Any]]  # label, runs, look


def seven() -> Drawing:
    """Pass rate, response length and entropy over training, and Avg@32, Pass@32 and Maj@32 after it, on parity.

    A column for each method, the means of the other methods in grey: four bands in one panel cannot be told apart.

    Source: arXiv:2602.05933, figure results-7B.
    Differs: a toy task with a chain of thought; rewards {0,1}; no smoothing; the evaluation is that after training.
    Entropy is in nats per response, summed over its tokens.
    """
    data: dict[str, Array] = {}
    rows: list[Row] = [(title(name), setting("sequence", name), look(name, marker=True)) for name in METHODS]
    seeds = len(rows[0][1]["seeds"])
    with style():
        figure = Figure(figsize=(7.6, 7.2))
        parts: Any = figure.subfigures(2, 1, height_ratios=(1.75, 1))
        upper, lower = parts
        grid = upper.subplots(len(COLUMNS), len(rows), sharex=True, sharey="row")
        for line, (key, label) in zip(grid, COLUMNS.items(), strict=True):
            for place, (ax, name) in enumerate(zip(line, METHODS, strict=True)):
                data[f"{key} {name}"] = apart(ax, rows, place, key)
            line[0].set_ylabel(label)
            line[0].set_ylim(0.0, 1.03 if key == "pass_rate" else None)  # intervals of Student's t know no ends
        for ax, (text, *_) in zip(grid[0], rows, strict=True):
            ax.set_title(text)
        upper.supxlabel(PROMPTS, fontsize=9)
        for ax, (which, measure) in zip(lower.subplots(1, 3), enumerate(MEASURES), strict=True):
            for place, (name, (_, of, looks)) in enumerate(zip(METHODS, rows, strict=True)):
                data[f"{measure} {name}"] = ends(ax, place, np.array(of["measured"])[:, which], **looks)
            ax.set_yticks(range(len(rows)), [text for text, *_ in rows] if which == 0 else [""] * len(rows))
            ax.set(
                ylim=(len(rows) - 0.5, -0.5),
                xlim=(0.28, 1.04),
                title=f"{measure} after training",
                xlabel=f"share of {UNITS[measure]}",
            )
            ax.grid(axis="y", visible=False)
        figure.suptitle(f"{TASKS['parity']}, staleness 4; {scale(seeds)}", fontsize=9)
    after = "; ".join(f"{title(name)} {told(data[f'Avg@32 {name}'])}" for name in METHODS)
    best = "; ".join(f"{title(name)} {told(data[f'Maj@32 {name}'])}" for name in METHODS)
    sentence = (
        f"Parity has two answers: guessing has a pass rate of 0.5 and nearly every problem falls to the best of 32. "
        f"Avg@32 after training: {after}. Maj@32: {best}. {ranking(data, seeds)}"
    )
    alt = (
        "A column of three panels for each method, the others in grey: pass rate, response length in tokens and "
        "entropy in nats against thousands of prompts. Below, Avg@32, Pass@32 and Maj@32 after training with seeds as "
        f"dots; {', '.join(map(title, METHODS))}. {sentence}"
    )
    return Drawing(figure, alt, sentence, data)


def ranking(data: dict[str, Array], seeds: int) -> str:
    """Whether the intervals of Avg@32 part any two methods."""
    low, high = (np.array([data[f"Avg@32 {name}"][side] for name in METHODS]) for side in (1, 2))
    if low.max() < high.min():
        return f"With {seeds} seeds the intervals overlap: nothing here ranks these methods."
    return f"With {seeds} seeds some of the intervals do not overlap."


def eight() -> Drawing:
    """GRPO and PMD-mean at two temperatures a factor of ten apart, as for the 30B model, on modular sum.

    A column for each setting, the means of the others in grey.

    Source: arXiv:2602.05933, figure results-30B.
    Differs: a dense toy transformer; tau 0.005 and 0.05 on {0,1} are the paper's 0.01 and 0.1 on rewards of +-1. One
    token a response: there is no length to show. A mixture of experts comes with a run of the recipe starter-moe.
    """
    data: dict[str, Array] = {}
    dark, light = shades(2)
    names = ["pmd-mean 0.005", "pmd-mean 0.05", "grpo"]
    looks: list[dict[str, Any]] = [
        {"color": dark, "linestyle": "-", "marker": "o"},
        {"color": light, "linestyle": "-", "marker": "v"},
        look("grpo", marker=True),
    ]
    rows: list[Row] = [
        (rf"PMD-mean, $\tau$ = {tau}", setting("tau", f"pmd-mean tau={tau}"), own)
        for tau, own in zip(("0.005", "0.05"), looks, strict=False)
    ]
    rows.append(("GRPO", setting("training-curves", "grpo"), looks[-1]))
    seeds = len(rows[0][1]["seeds"])
    with style():
        figure = Figure(figsize=(7.6, 5.2))
        parts: Any = figure.subfigures(2, 1, height_ratios=(2.6, 1))
        upper, lower = parts
        grid = upper.subplots(2, len(rows), sharex=True, sharey="row")
        for place, name in enumerate(names):
            data[f"pass_rate {name}"] = apart(grid[0][place], rows, place, "pass_rate")
            data[f"log_ratio_min {name}"] = apart(grid[1][place], rows, place, "log_ratio_min")
            grid[0][place].set_title(rows[place][0])
        grid[0][0].set(ylabel="pass rate of\nthe rollouts", ylim=(-0.03, 1.03))
        grid[1][0].set(ylabel="smallest log-ratio\nof a step (nats)", ylim=(None, 0.4))
        upper.supxlabel(PROMPTS, fontsize=9)
        after = lower.subplots()
        for place, (name, (_, of, own)) in enumerate(zip(names, rows, strict=True)):
            data[f"after {name}"] = ends(after, place, np.array(of["last"]), **own)
        after.set(xlabel="pass rate after training (share of draws)", ylim=(len(rows) - 0.5, -0.5))
        after.set_yticks(range(len(rows)), [text for text, *_ in rows])
        after.grid(axis="y", visible=False)
        figure.suptitle(f"{TASKS['modular-sum']}, staleness 16; {scale(seeds)}", fontsize=9)
    texts = [text.replace(chr(36), "").replace(chr(92), "") for text, *_ in rows]
    final = "; ".join(f"{text} {told(data[f'after {name}'], 3)}" for text, name in zip(texts, names, strict=True))
    sentence = (
        f"A dense toy transformer, not a mixture of experts. After training: {final}. Both temperatures learn, and "
        "GRPO with them; a factor of ten in tau hardly matters here, as in the paper's table."
    )
    alt = (
        "A column of two panels for each of PMD-mean at two temperatures and GRPO, the others in grey: pass rate and "
        "smallest log-ratio in nats against thousands of prompts. Below, the pass rate after training with seeds as "
        f"dots. {sentence}"
    )
    return Drawing(figure, alt, sentence, data)
