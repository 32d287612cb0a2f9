"""Figure 7 on a language model, in miniature: pass rate and length of the starter over training, and after it.

The runs: stored/starter.json, three seeds a method, from benchmarks/results/starter.json;
tests/figures/collect_starter_runs.py made it. Toy transformers: training_panels.py.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import look, style
from pmdkit.figures.toy_runs import Array, apart, ends, setting, title, told

METHODS = ("pmd-mean", "pmd-part", "grpo")
COLUMNS = {"pass_rate": "pass rate of\nthe rollouts", "response_length": "response length\n(tokens)"}
SCALE = "starter scale: a Qwen2 of 259 thousand weights, 3 seeds, bands and bars: 95 % intervals over seeds"


def draw() -> Drawing:
    """Pass rate and response length over training, and the held-out pass rate after it, a column for each method.

    Source: arXiv:2602.05933, figures main_result and results-7B.
    Differs: a Qwen2 of 259 thousand weights on sums told as stories, built and taught on the spot; two updates a batch;
    rewards {0,1}; tau 0.05 for both PMD methods; no smoothing.
    """
    data: dict[str, Array] = {}
    rows: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
        (title(name), setting("starter", name), look(name, marker=True)) for name in METHODS
    ]
    seeds = len(rows[0][1]["seeds"])
    with style():
        figure = Figure(figsize=(7.4, 5.4))
        parts: Any = figure.subfigures(2, 1, height_ratios=(2.6, 1))
        upper, lower = parts
        grid = upper.subplots(len(COLUMNS), len(rows), sharex=True, sharey="row")
        for line, (key, label) in zip(grid, COLUMNS.items(), strict=True):
            for place, (ax, name) in enumerate(zip(line, METHODS, strict=True)):
                data[f"{key} {name}"] = apart(ax, rows, place, key)
            line[0].set_ylabel(label)
        grid[0][0].set_ylim(0.0, 1.03)
        for ax, (text, *_) in zip(grid[0], rows, strict=True):
            ax.set_title(text)
        upper.supxlabel("prompts answered (thousands)", fontsize=9)
        after = lower.subplots()
        for place, (name, (_, of, own)) in enumerate(zip(METHODS, rows, strict=True)):
            data[f"after {name}"] = ends(after, place, np.array(of["last"]), **own)
        after.set(xlabel="held-out pass rate after training (share of draws)", ylim=(len(rows) - 0.5, -0.5))
        after.set_yticks(range(len(rows)), [text for text, *_ in rows])
        after.grid(axis="y", visible=False)
        figure.suptitle(SCALE.replace("3 seeds", f"{seeds} seeds"), fontsize=9)
    final = "; ".join(f"{title(name)} {told(data[f'after {name}'], 3)}" for name in METHODS)
    sentence = (
        f"Held-out pass rate after training: {final}. This is the size of a demonstration: the recipe, its learning "
        f"rate and its temperature were set for time, not for ranks, and {seeds} seeds part only large differences."
    )
    alt = (
        "A column of two panels for each method, the others in grey: pass rate and response length in tokens against "
        f"thousands of prompts. Below, the held-out pass rate after training with seeds as dots. {sentence}"
    )
    return Drawing(figure, alt, sentence, data)
