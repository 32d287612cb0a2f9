"""Trends and jumps of a curve, against its own noise; and the std of a group of draws."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]

SURE = 3.0  # standard errors: the reward rises or falls
JUMP = 6.0  # standard errors of a jump: of hundreds of places to look at, none is passed by chance
SHARP = 0.5  # of a jump that happens within two steps; a trend has less
GROUP = 8  # draws of a group, for a law that needs a size where the log has none


@dataclass(frozen=True)
class Trend:
    """A column's means over the first and the last third, and the noise of one logged point.

    z is their difference in standard errors; the noise is taken from successive differences, so a trend adds nothing.
    """

    first: float
    last: float
    noise: float
    z: float


def trend(values: Values) -> Trend:
    """The trend of a column [n] without NaN, n >= 1."""
    third = max(len(values) // 3, 1)
    first, last = float(values[:third].mean()), float(values[-third:].mean())
    steps = np.abs(np.diff(values)) if len(values) > 1 else np.zeros(1)
    noise = max(float(np.median(steps)) / 0.954, 0.5 * float(np.sqrt(np.mean(steps**2) / 2)), 1e-9)
    return Trend(first, last, noise, (last - first) / (noise * math.sqrt(2 / third)))


@dataclass(frozen=True)
class Jump:
    """A change of a column between two points: the point after it, its size, and its size in standard errors."""

    at: int
    size: float
    z: float


def group_std(rate: Values, size: int = GROUP) -> Values:
    """The expected std (divided by size - 1) of a group of rewards 0 and 1 that share one pass rate."""
    right = np.arange(size + 1)
    ways = np.array([math.comb(size, k) for k in right])
    std = np.sqrt(right * (size - right) / (size * (size - 1)))
    p = np.asarray(rate)[..., None]
    return (ways * p**right * (1 - p) ** (size - right) * std).sum(-1)


def jump(values: Values) -> Jump | None:
    """The largest change of level of a column that is sharp, beyond its usual drift; None if there is none."""
    n = len(values)
    width = min(7, (n // 4 - 1) | 1)  # odd, so that a median is one of the values
    if n < 12:
        return None
    places = np.arange(width, n - width + 1)
    medians = np.median(np.lib.stride_tricks.sliding_window_view(values, width), axis=1)
    change = medians[width:] - medians[:-width]
    elsewhere = np.abs(places - places[int(np.abs(change).argmax())]) >= width
    size = change - (np.median(change[elsewhere]) if elsewhere.any() else 0.0)
    pairs = (values[:-1] + values[1:]) / 2
    near = pairs[places] - pairs[places - 2]
    sharp = np.where(near * size >= SHARP * size**2, np.abs(size), 0.0)
    best = int((sharp * np.abs(near)).argmax())  # next to a jump the medians jump, too
    noise = max(trend(values).noise, 0.01 * float(np.ptp(values)))
    z = sharp[best] / (noise * 1.25 * math.sqrt(2 / width))
    return Jump(int(places[best]), float(size[best]), float(z)) if z >= JUMP else None


def goes_on(values: Values, found: Jump) -> bool:
    """Whether a column goes on after a jump, by half as much: then it declines, and no level has changed."""
    after = trend(values[found.at :])
    return abs(after.z) > SURE and (after.last - after.first) / found.size > SHARP


def at_once(values: Values, found: Jump) -> bool:
    """Whether half of the change from all steps before a jump to all steps after it happens within three of each."""
    before, after = values[: found.at], values[found.at :]
    near, whole = after[:3].mean() - before[-3:].mean(), after.mean() - before.mean()
    return bool(near * whole >= SHARP * whole**2)
