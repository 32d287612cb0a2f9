"""PMD-mean with the own reward left out of the baseline (the paper), and kept in (Kimi K1.5)."""

from typing import Any

from pmdkit.figures.drawing import Drawing
from pmdkit.sweeps.pictures.contrast import contrast


def draw(record: dict[str, Any]) -> Drawing:
    """With 16 draws, the own reward shrinks every advantage by 15/16.

    Source: arXiv:2602.05933, eq. loo-s-mean; Kimi K1.5, arXiv:2501.12599.
    """
    return contrast(record, ("leave-one-out", "own draw kept"), r"PMD-mean, $\tau$ = 0.05 on rewards {0,1}")
