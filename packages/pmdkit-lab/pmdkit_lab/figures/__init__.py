"""The paper's figures and tables, recomputed, and the picture of a run. FIGURES and TABLES list what there is.

`draw("fig2")` returns a Drawing: the figure, its alt text, a sentence on what to see, and the numbers drawn.
`table("tab1-scores")` returns a Table.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

from pmdkit.errors import UsageError, unknown
from pmdkit.figures.style import save, style
from pmdkit_lab.figures.drawing import Drawing
from pmdkit_lab.figures.looks import COLOURS, look
from pmdkit_lab.figures.tables import Table

__all__ = ["COLOURS", "FIGURES", "TABLES", "Drawing", "Entry", "Table", "draw", "look", "save", "style", "table"]


class Entry(NamedTuple):
    """The function that draws a figure or table, its place in the paper, and the source of its numbers.

    Attributes:
        function: `module.function` of this package, imported when it is called.
        label: its label in the paper.
        about: one sentence.
        source: "exact", computed here; "draws", simulated here; "toy" and "starter", stored training runs; "paper",
            numbers that the paper prints.
    """

    function: str
    label: str
    about: str
    source: str = "exact"

    def compute(self, **options: Any) -> Any:
        """Call the function."""
        module, name = self.function.split(".")
        return getattr(import_module(f"pmdkit_lab.figures.{module}"), name)(**options)


FIGURES = {
    "fig1-left": Entry("solutions.log_partition", "fig:partition_vs_mean, left", "Log-partition against mean reward."),
    "fig1-right": Entry(
        "solutions.two_solutions", "fig:partition_vs_mean, right", "Two regressions, two solutions, one simplex."
    ),
    "fig2": Entry(
        "solutions.log_ratios",
        "fig:ratio",
        "Log-ratios of right and wrong responses, exact and as small-tau formulas.",
    ),
    "target-error": Entry(
        "target_error.target_error", "fig:target_estimation", "Error of the leave-one-out targets.", "draws"
    ),
    "target-error-split": Entry(
        "target_error.target_error_split", "fig:target_actions", "The same error, right and wrong apart.", "draws"
    ),
    "fig4-toy": Entry(
        "training_curves.main_result", "fig:main_result", "Training of both methods with baselines, toy scale.", "toy"
    ),
    "fig5-toy": Entry(
        "training_curves.min_ratio", "fig:min_ratio", "Smallest log-ratio of each step, toy scale, and exact.", "toy"
    ),
    "fig7-toy": Entry(
        "training_curves.results_7b",
        "fig:results-7B",
        "Reward, length, entropy, best-of and majority, toy scale.",
        "toy",
    ),
    "fig8-toy": Entry(
        "training_curves.results_30b", "fig:results-30B", "GRPO and PMD-mean at two temperatures, toy scale.", "toy"
    ),
    "fig7-starter": Entry(
        "training_curves.starter",
        "fig:results-7B",
        "Pass rate and length of a tiny language model over training.",
        "starter",
    ),
}
TABLES = {
    "tab1-scores": Entry("scores.main_results", "tab:main-results", "Avg@32, with intervals.", "paper"),
    "tab2-speed": Entry("tables.speed", "tab:efficiency_comparison", "Milliseconds per token.", "paper"),
    "tab3-gspo": Entry("scores.gspo", "tab:gspo", "PMD-mean and GSPO, with intervals.", "paper"),
    "tab4-hyperparameters": Entry("tables.hyperparameters", "tab:hyperparams", "Hyperparameters as data.", "paper"),
}


def draw(name: str, runs: Mapping[str, Any] | None = None) -> Drawing:
    """Compute and draw one of FIGURES.

    Args:
        name: a key of FIGURES.
        runs: what a figure of source "toy" or "starter" is drawn from instead of the stored runs, in the same form.
    """
    if name not in FIGURES:
        raise UsageError(unknown("figure", name, FIGURES))
    drawing: Drawing = FIGURES[name].compute(**({} if runs is None else {"runs": runs}))
    return drawing


def table(name: str) -> Table:
    """Compute one of TABLES."""
    if name not in TABLES:
        raise UsageError(unknown("table", name, TABLES))
    computed: Table = TABLES[name].compute()
    return computed
