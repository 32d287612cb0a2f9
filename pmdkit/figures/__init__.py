"""Room: the paper's figures, recomputed, one file each, and the picture of a run. This dict is the table of contents.

`draw("fig2")` gives a Drawing: the figure, its alt text, what to see in it, and the numbers drawn.
"""

from importlib import import_module
from typing import NamedTuple

from pmdkit.errors import UsageError
from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import COLOURS, look, save, style
from pmdkit.nearest import unknown

__all__ = ["COLOURS", "FIGURES", "Drawing", "Entry", "draw", "look", "save", "style"]


class Entry(NamedTuple):
    """Where a figure is drawn and what it is in the paper."""

    module: str
    label: str
    about: str


FIGURES = {
    "fig1-left": Entry("partition_vs_mean", "fig:partition_vs_mean, left", "Log-partition against mean reward."),
    "fig1-right": Entry(
        "two_solutions", "fig:partition_vs_mean, right", "Two regressions, two solutions, one simplex."
    ),
    "fig2": Entry("ratio", "fig:ratio", "Log-ratios of right and wrong responses, exact and as small-tau formulas."),
    "target-error": Entry("target_error", "fig:target_estimation", "Error of the leave-one-out targets."),
    "target-error-split": Entry("target_error_split", "fig:target_actions", "The same error, right and wrong apart."),
}


def draw(name: str) -> Drawing:
    """Compute and draw one of FIGURES."""
    if name not in FIGURES:
        raise UsageError(unknown("figure", name, FIGURES))
    drawing = import_module(f"pmdkit.figures.{FIGURES[name].module}").draw()
    assert isinstance(drawing, Drawing)
    return drawing
