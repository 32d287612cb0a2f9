"""Training curves at starter scale: a tiny Qwen2 taught on the spot, then trained by PMD-mean, PMD-part and GRPO.

A seed builds and teaches the same model for all three, so that they are paired. What the recipe is: llm/recipes/.
"""

from collections.abc import Callable

import numpy as np

from pmdkit.figures import FIGURES, starter_runs
from pmdkit.figures.drawing import Drawing
from pmdkit.figures.toy_runs import drawn_from, title
from pmdkit.reproducing.part import Bench
from pmdkit.reproducing.pieces import Piece, Sheet, keep
from pmdkit.reproducing.trained import in_lists, run_all
from pmdkit.sweeps.grid import Options, variants
from pmdkit.sweeps.pictures.panels import Runs, by_setting, say, say_paired, values
from pmdkit.sweeps.statistics import mean_interval, paired

RECIPE = "starter"
METHODS: dict[str, Options] = {
    "pmd-mean": {"objective.name": "pmd-mean", "objective.tau": 0.05},
    "pmd-part": {"objective.name": "pmd-part", "objective.tau": 0.05},
    "grpo": {"objective.name": "grpo"},
}
# prompts as in the recipe: the axis of the picture is made of what a run was told
FIXED: Options = {"schedule.prompts": 16, "run.checkpoint_every": 25, "run.keep": 1}
ABOUT = "PMD-mean, PMD-part and GRPO on a tiny language model."


def starter(seeds: int) -> Callable[[Bench], list[Piece]]:
    """The part that trains the starter with three objectives and draws what came out."""

    def make(bench: Bench) -> list[Piece]:
        points = variants("llm", RECIPE, list(METHODS.values()), range(seeds), FIXED)
        result = run_all(bench, "starter", points, {"about": ABOUT, "env": RECIPE, "settings": METHODS})
        settings = by_setting(result)
        about = f"{seeds} seeds, 0 to {seeds - 1}"
        name = "fig7-starter"  # takes the place of the one from stored runs
        heading = FIGURES[name].about.rstrip(".")
        return [keep(draw(settings), bench.folder, name, heading, "starter", about), table(settings, about)]

    return make


def draw(settings: dict[str, Runs]) -> Drawing:
    """The figure fig7-starter from these runs."""
    runs = {name: in_lists(found, tuple(starter_runs.COLUMNS)) for name, found in settings.items()}
    drawing, _ = drawn_from({RECIPE: {"env": RECIPE, "settings": runs}}, starter_runs.draw)
    return drawing


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
