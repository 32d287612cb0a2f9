"""The simplex of three actions as an equilateral triangle: coordinates, frame, contours and paths."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.tri import Triangulation
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(3) / 2]])  # places of the three actions


def to_xy(probs: ArrayLike) -> Array:
    """Map [..., 3] policies to [..., 2] points in the triangle; a corner is a policy that always takes one action."""
    xy: Array = np.asarray(probs, dtype=np.float64) @ CORNERS
    return xy


def triangle(ax: Axes, labels: Sequence[str] = ("action 1", "action 2", "action 3")) -> None:
    """Draw the empty simplex with a label at each corner, and hide the axes."""
    ax.fill(*CORNERS.T, facecolor="none", edgecolor="0.35", linewidth=1.0, zorder=1.5)
    for corner, label, (dx, dy) in zip(CORNERS, labels, ((0, -6), (0, -6), (0, 5)), strict=True):
        ax.annotate(label, corner, (dx, dy), textcoords="offset points", ha="center", va="bottom" if dy > 0 else "top")
    ax.set_aspect("equal")
    ax.set(xlim=(-0.06, 1.06), ylim=(-0.02, np.sqrt(3) / 2 + 0.02))
    ax.axis("off")


def grid(steps: int = 120) -> Array:
    """[K, 3] policies that fill the simplex up to a millionth from the edges, where a divergence is infinite."""
    i, j = (index.ravel() for index in np.indices((steps + 1, steps + 1)))
    inside = i + j <= steps
    policies = np.stack([i, j, steps - i - j], -1)[inside] / steps
    return policies * (1 - 3e-6) + 1e-6


def contour(
    ax: Axes,
    value: Callable[[Array], Array],
    levels: Sequence[float] | Array | int = 8,
    filled: bool = False,
    **options: Any,
) -> Any:
    """Draw level lines of a function of the policy, [K, 3] -> [K]; returns matplotlib's contour set for `ax.clabel`."""
    policies = grid()
    x, y = to_xy(policies).T
    draw = ax.tricontourf if filled else ax.tricontour
    return draw(Triangulation(x, y), value(policies), levels, **options)


def path(ax: Axes, probs: ArrayLike, arrows: Sequence[float] = (), **options: Any) -> None:
    """Draw a line through policies [K, 3], with arrowheads at the given fractions of its length."""
    xy = to_xy(probs)
    (line,) = ax.plot(*xy.T, **options)
    length = np.concatenate([[0.0], np.linalg.norm(np.diff(xy, axis=0), axis=1).cumsum()])
    for fraction in arrows:
        ends = [
            np.interp(length[-1] * f, length, column) for f in (fraction - 0.01, fraction + 0.01) for column in xy.T
        ]
        ax.annotate(
            "",
            (float(ends[2]), float(ends[3])),
            (float(ends[0]), float(ends[1])),
            arrowprops={"arrowstyle": "-|>", "color": line.get_color(), "mutation_scale": 11, "linewidth": 0},
        )
