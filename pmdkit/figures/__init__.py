"""Room: the paper's figures and tables, recomputed, and the picture of a run. These dicts are the table of contents.

`draw("fig2")` gives a Drawing: the figure, its alt text, what to see in it, and the numbers drawn.
`table("tab1-scores")` gives a Table. check.py compares both with stored numbers.
"""

from importlib import import_module
from typing import NamedTuple

from pmdkit.errors import UsageError
from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import COLOURS, look, save, style
from pmdkit.figures.table import Table
from pmdkit.nearest import unknown

__all__ = ["COLOURS", "FIGURES", "TABLES", "Drawing", "Entry", "Table", "draw", "look", "save", "style", "table"]


class Entry(NamedTuple):
    """Where a figure or a table is made, what it is in the paper, and what its numbers are.

    Attributes:
        module: file of this room.
        label: label of the paper.
        about: one sentence.
        source: "exact", computed here; "draws", simulated here; "toy" and "starter", stored training runs; "paper",
            its own numbers.
        function: of the module.
    """

    module: str
    label: str
    about: str
    source: str = "exact"
    function: str = "draw"


FIGURES = {
    "fig1-left": Entry("partition_vs_mean", "fig:partition_vs_mean, left", "Log-partition against mean reward."),
    "fig1-right": Entry(
        "two_solutions", "fig:partition_vs_mean, right", "Two regressions, two solutions, one simplex."
    ),
    "fig2": Entry("ratio", "fig:ratio", "Log-ratios of right and wrong responses, exact and as small-tau formulas."),
    "target-error": Entry("target_error", "fig:target_estimation", "Error of the leave-one-out targets.", "draws"),
    "target-error-split": Entry(
        "target_error_split", "fig:target_actions", "The same error, right and wrong apart.", "draws"
    ),
    "fig4-toy": Entry("main_result", "fig:main_result", "Training of both methods with baselines, toy scale.", "toy"),
    "fig5-toy": Entry("min_ratio", "fig:min_ratio", "Smallest log-ratio of each step, toy scale, and exact.", "toy"),
    "fig7-toy": Entry(
        "training_panels", "fig:results-7B", "Reward, length, entropy, best-of and majority, toy scale.", "toy", "seven"
    ),
    "fig8-toy": Entry(
        "training_panels", "fig:results-30B", "GRPO and PMD-mean at two temperatures, toy scale.", "toy", "eight"
    ),
    "fig7-starter": Entry(
        "starter_runs", "fig:results-7B", "Pass rate and length of a tiny language model over training.", "starter"
    ),
    "scores": Entry("score_dots", "tab:main-results, tab:gspo", "The paper's scores with intervals.", "paper"),
}
TABLES = {
    "tab1-scores": Entry("tables_scores", "tab:main-results", "Avg@32, with intervals.", "paper", "main_results"),
    "tab2-speed": Entry("tables_settings", "tab:efficiency_comparison", "Milliseconds per token.", "paper", "speed"),
    "tab3-gspo": Entry("tables_scores", "tab:gspo", "PMD-mean and GSPO, with intervals.", "paper", "gspo"),
    "tab4-hyperparameters": Entry(
        "tables_settings", "tab:hyperparams", "Hyperparameters as data.", "paper", "hyperparameters"
    ),
}


def draw(name: str) -> Drawing:
    """Compute and draw one of FIGURES."""
    if name not in FIGURES:
        raise UsageError(unknown("figure", name, FIGURES))
    drawing = made(FIGURES[name])
    assert isinstance(drawing, Drawing)
    return drawing


def table(name: str) -> Table:
    """Compute one of TABLES."""
    if name not in TABLES:
        raise UsageError(unknown("table", name, TABLES))
    found = made(TABLES[name])
    assert isinstance(found, Table)
    return found


def made(entry: Entry) -> object:
    """What the function of an entry returns."""
    return getattr(import_module(f"pmdkit.figures.{entry.module}"), entry.function)()
