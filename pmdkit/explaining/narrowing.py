"""Where a condition first holds, to the last digit: many points at once, as many policies cost one look."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from pmdkit.explaining.landscape import Array

POINTS, ROUNDS = 16, 13  # 16^13 = 2^52


def narrow(holds: Callable[[Array], NDArray[np.bool_]], low: Array, high: Array) -> Array:
    """[P] the smallest place at which the condition holds, between one at which it does not and one at which it does.

    Args:
        holds: [P, 15] places to [P, 15] booleans, row by row.
        low, high: [P].
    """
    rows = np.arange(len(low))
    for _ in range(ROUNDS if len(low) else 0):
        places = low[:, None] + (high - low)[:, None] * np.arange(POINTS + 1) / POINTS
        places[:, -1] = high
        inside = holds(places[:, 1:-1])
        first = 1 + np.where(inside.any(1), inside.argmax(1), POINTS - 1)
        low, high = places[rows, first - 1], places[rows, first]
    return high
