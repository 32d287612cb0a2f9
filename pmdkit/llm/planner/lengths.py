"""How long responses are: the share that is still being written after t tokens. Tables: `length_tables`."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pmdkit.errors import UsageError
from pmdkit.llm.planner.length_tables import QUANTILES
from pmdkit.nearest import unknown

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Lengths:
    """A distribution of response lengths.

    Attributes:
        alive: [width], P(length > t) for t = 0 .. width - 1; not increasing, alive[0] = 1.
    """

    alive: Array

    @property
    def width(self) -> int:
        """The longest that a response may be, tokens."""
        return len(self.alive)

    @property
    def mean(self) -> float:
        """E[length], tokens."""
        return float(self.alive.sum())

    @property
    def square(self) -> float:
        """E[length^2], tokens^2: the sum of (2 t + 1) P(length > t)."""
        return float(((2 * np.arange(self.width) + 1) * self.alive).sum())

    def longest(self, rows: float) -> float:
        """E[the longest of so many independent responses], tokens."""
        return float(any_alive(self.alive, rows).sum())

    def draw(self, rows: int, generator: np.random.Generator) -> NDArray[np.int64]:
        """Lengths of so many responses, [rows], 1 to width."""
        dead = 1 - self.alive  # P(length <= t), to be passed by a uniform number
        return np.searchsorted(dead, generator.random(rows), side="right").clip(1, self.width)


def any_alive(alive: Array, rows: float) -> Array:
    """P(at least one of so many independent responses is longer than t)."""
    gone = np.clip(1 - alive, 0, 1)
    return np.asarray(1 - gone**rows, float)


def from_quantiles(quantiles: Array, width: int) -> Lengths:
    """The distribution whose quantile function runs straight between these, tokens; longer responses are cut off."""
    inside = np.interp(np.arange(width), quantiles, np.linspace(0, 1, len(quantiles)), left=0.0, right=1.0)
    return Lengths(1 - inside)


def lengths(shape: str, width: int, mean: float | None = None) -> Lengths:
    """A measured shape at this width; with a mean, stretched or squeezed until the cut-off lengths have it.

    Without a mean the lengths are the measured shares of the width: a model that may write more does.
    """
    if shape not in QUANTILES:
        raise UsageError("--lengths: " + unknown("shape", shape, QUANTILES))
    quantiles = np.asarray(QUANTILES[shape]) * width
    if mean is None:
        return from_quantiles(quantiles, width)
    if not 1 <= mean <= 0.95 * width:
        raise UsageError(f"--mean-length is {mean:g} at a width of {width}; expected 1 to {0.95 * width:.0f} tokens")
    low, high = 1e-6, 1e6
    for _ in range(80):  # the mean grows with the scale: halve the interval of its logarithm
        middle = (low * high) ** 0.5
        low, high = (middle, high) if from_quantiles(quantiles * middle, width).mean < mean else (low, middle)
    return from_quantiles(quantiles * high, width)
