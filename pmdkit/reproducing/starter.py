"""Training curves at starter scale: a tiny Qwen2 taught on the spot, then trained by PMD-mean, PMD-part and GRPO.

A seed builds and teaches the same model for all three, so that they are paired. What the recipe is: llm/recipes/.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import TITLES, look, style
from pmdkit.reproducing.part import Bench
from pmdkit.reproducing.pieces import Piece, Sheet, keep
from pmdkit.reproducing.small_runs import behind
from pmdkit.reproducing.trained import run_all
from pmdkit.sweeps.grid import Options, variants
from pmdkit.sweeps.pictures.panels import Runs, band, by_setting, curve, say, say_paired, values
from pmdkit.sweeps.statistics import mean_interval, paired

RECIPE = "starter"
METHODS: dict[str, Options] = {
    "pmd-mean": {"objective.name": "pmd-mean", "objective.tau": 0.05},
    "pmd-part": {"objective.name": "pmd-part", "objective.tau": 0.05},
    "grpo": {"objective.name": "grpo"},
}
# prompts as in the recipe: the axis of the picture is made of what a run was told
FIXED: Options = {"schedule.prompts": 16, "run.checkpoint_every": 25, "run.keep": 1}
SHOWN = {"pass_rate": "pass rate of\nthe rollouts", "response_length": "response length\n(tokens)"}
SCALE = "starter scale: a Qwen2 of 259 thousand weights"
ABOUT = "PMD-mean, PMD-part and GRPO on a tiny language model."


def starter(seeds: int) -> Callable[[Bench], list[Piece]]:
    """The part that trains the starter with three objectives and draws what came out."""

    def make(bench: Bench) -> list[Piece]:
        points = variants("llm", RECIPE, list(METHODS.values()), range(seeds), FIXED)
        result = run_all(bench, "starter", points, {"about": ABOUT, "env": RECIPE, "settings": METHODS})
        settings = by_setting(result)
        drawing = draw(settings, seeds)
        about = f"{seeds} seeds, 0 to {seeds - 1}"
        title = "The main result's curves on a language model, in miniature"
        return [keep(drawing, bench.folder, "starter-curves", title, "starter", about), table(settings, about)]

    return make


def draw(settings: dict[str, Runs], seeds: int) -> Drawing:
    """Pass rate and length over training, a column for each method, the others in grey.

    Source: arXiv:2602.05933, figures main_result and results-7B.
    Differs: a Qwen2 of 259 thousand weights on sums told as stories; 2 updates a batch; rewards {0,1}; no smoothing.
    """
    data: dict[str, Any] = {}
    with style():
        figure = Figure(figsize=(7.4, 4.4))
        grid = figure.subplots(len(SHOWN), len(settings), sharex=True, sharey="row", squeeze=False)
        for line, (key, label) in zip(grid, SHOWN.items(), strict=True):
            of = {name: curve(runs, key) for name, runs in settings.items()}
            for ax, (name, (x, each)) in zip(line, of.items(), strict=True):
                behind(ax, x, [other.mean(0) for method, (_, other) in of.items() if method != name])
                data[f"{key} {name}"] = band(ax, x, each, name, **look(name, marker=True))
            line[0].set_ylabel(label)
        for ax, name in zip(grid[0], settings, strict=True):
            ax.set(title=title(name), ylim=(0.0, 1.03))
        figure.supxlabel("prompts answered (thousands)", fontsize=9)
        figure.suptitle(f"{SCALE}, {seeds} seeds, bands: 95 % intervals over seeds", fontsize=9)
    last = {name: mean_interval(values(runs, "pass_rate_last")) for name, runs in settings.items()}
    ends = "; ".join(f"{title(name)} {say(end, 3)}" for name, end in last.items())
    sentence = (
        f"Held-out pass rate after training: {ends}. This is the size of a demonstration: the recipe, its learning "
        "rate and its temperature were set for time, not for ranks, and a few seeds part only large differences."
    )
    alt = f"A column for each method: pass rate and response length against thousands of prompts. {sentence}"
    return Drawing(figure, alt, sentence, data)


def table(settings: dict[str, Runs], about: str) -> Sheet:
    """The ends of training in numbers, paired by seed."""
    base = values(settings["pmd-mean"], "pass_rate_last")
    rows = []
    for name, runs in settings.items():
        last = values(runs, "pass_rate_last")
        against = "-" if name == "pmd-mean" else say_paired(paired(base, last), 3)
        ends = [mean_interval(values(runs, key)) for key in ("pass_rate_first", "pass_rate_last", "pass_rate_mean")]
        low = float(np.mean(values(runs, "log_ratio_min")))
        rows.append([title(name), *(say(end, 3) for end in ends), against, f"{low:.1f}"])
    heads = [
        "method", "held-out pass rate before", "after", "mean over training", "after, minus PMD-mean",
        "smallest log-ratio (nats)",
    ]  # fmt: skip
    see = "Brackets: 95 % intervals over seeds. The smallest log-ratio is that of all steps, mean of the seeds."
    return Sheet("starter-runs", "The starter in numbers", "starter", about, heads, rows, see)


def title(name: str) -> str:
    """A method as the figures call it."""
    return TITLES.get(name, name.upper())
