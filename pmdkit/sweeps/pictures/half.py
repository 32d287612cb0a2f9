"""PMD-mean with the factor 1/2 of the main text and the authors' code, and without it as in the appendix."""

from typing import Any

from pmdkit.figures.drawing import Drawing
from pmdkit.sweeps.pictures.contrast import contrast


def draw(record: dict[str, Any]) -> Drawing:
    """The loss and twice the loss: AdamW divides the scale out again, but for the clip of the gradient's norm.

    Source: arXiv:2602.05933, eq. L_mean against the appendix.
    """
    return contrast(record, ("half", "paper"), r"PMD-mean, $\tau$ = 0.05 on rewards {0,1}")
