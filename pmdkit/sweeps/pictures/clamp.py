"""PMD-part with the exact leave-one-out partition, and with the floor that the authors' code puts under it."""

from typing import Any

from pmdkit.figures.drawing import Drawing
from pmdkit.sweeps.pictures.contrast import contrast


def draw(record: dict[str, Any]) -> Drawing:
    """A success that is alone in its group has target 1/tau = 200 nats, or 18.42 with the floor.

    Source: OpenKimi `core_algos.py`, estimator `ploo`, against arXiv:2602.05933, eq. loo-s-part.
    """
    return contrast(record, ("exact", "clamped"), r"PMD-part, $\tau$ = 0.005 on rewards {0,1}")
