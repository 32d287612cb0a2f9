"""The fast twin of `solve` in lambert.py for rows without lengths: a start in single precision, then few passes.

Single precision brings u and log x near at a third of the cost. One sweep in double precision follows, and a series in
place of a second exponential. Where that is not sure to give all digits the twin declines, and `solve` takes over.
"""

import numpy as np
from numpy.typing import NDArray

from pmdkit.theory.inputs import Array

FEWEST = 4096  # entries; below, the time goes into calls
FEW = 32  # actions; below, it goes into sums over a few numbers
SMALL = -7.0  # log x below it is felt too little by the sum over pi: `solve` has its own care there
LARGE = 1e5  # a target beyond it has few digits in single precision
Reals = NDArray[np.floating]


class FastSolver:
    """The arrays of one block, allocated once for all blocks of a call."""

    def __init__(self, rows: int, actions: int) -> None:
        self.single = np.empty((7, rows, actions), np.float32)
        self.double = np.empty((4, rows, actions))

    def solve(self, pi: Array, target: Array, u: Array) -> Array:
        """Writes u [S, A] and returns log x [S], NaN for the rows that it declines; there u is of no use.

        Args:
            pi: [S, A] policies, up to a factor per row.
            target: [S, A] Delta / tau, with mean 0 under pi.
            u: [S, A] to be written.
        """
        if pi.size < FEWEST or pi.shape[1] < FEW:
            return np.full(len(pi), np.nan)
        with np.errstate(all="ignore"):  # a row that overflows ends in NaN
            return self.finish(pi, target, u, self.near(pi, target, u))

    def near(self, pi: Array, target: Array, u: Array) -> Array:
        """Newton in single precision, to some 1e-6; the start is that of `solve`."""
        room = self.single[:, : len(pi)]
        growth, z, _, _, p, goal, here = room
        p[...], goal[...] = pi, target
        total = p.sum(1)
        gain = np.vecdot(p, np.maximum(goal, 0, out=z)) / total
        law = np.sqrt(gain * (1 + gain))
        np.exp(np.clip(goal, -40, 80, out=growth), out=growth)
        bound = np.log(np.vecdot(p, growth) / total)
        log_x = np.log(np.where(bound < 60, np.minimum(bound, law), law))
        log_x[~((log_x >= SMALL) & (goal.min(1) > -LARGE) & (goal.max(1) < LARGE))] = np.nan
        growth *= np.exp(log_x)[:, None]
        growth += 1
        np.log(growth, out=growth)
        np.add(goal, log_x[:, None], out=z)
        np.maximum(growth, z, out=growth)
        np.add(growth, 1, out=z)
        np.log(z, out=here)
        z += 1
        here /= z
        here -= 1
        here *= growth  # minus the guess of W
        here += goal
        for sweeps in range(8):
            drop, step, _ = sweep(p, goal, here, log_x, room)
            here -= drop
            log_x += np.clip(step, -3, 3)
            if sweeps > 0 and not (np.abs(step) >= 1e-3).any():
                break
        u[...] = here
        return log_x.astype(float)

    def finish(self, pi: Array, target: Array, u: Array, log_x: Array) -> Array:
        """Newton in double precision, and the square of its step: what is left is of third order."""
        room = self.double[:, : len(pi)]
        growth, weight, _, square = room
        for _ in range(3):
            drop, step, fall = sweep(pi, target, u, log_x, room)
            u -= drop
            np.subtract(step[:, None], drop, out=square)  # the sweep took e to this for a straight line
            square *= square
            square *= weight
            drop *= drop
            drop -= square
            more = np.vecdot(growth, drop) / (2 * fall)
            square *= 0.5
            weight *= more[:, None]
            square += weight
            u -= square
            log_x += step + more
            worst = np.maximum(np.maximum(square.max(1), -square.min(1)), np.abs(more))
            if not (worst >= 1e-10).any():
                break
        log_x[~((worst < 1e-10) & (log_x >= SMALL))] = np.nan
        return log_x


def sweep(pi: Reals, target: Reals, u: Reals, log_x: Reals, room: Reals) -> tuple[Reals, Reals, Reals]:
    """Newton on u and log x together, as in `solve`: how far u falls, log x rises, and the slope of the sum.

    `room` [4.., S, A] then holds pi e^u and w / (1 + w) in its first two parts.
    """
    growth, weight, drop, slope = room[:4]
    np.maximum(u, -40, out=slope)  # below, e^u - 1 is -1 to the last digit, and numpy takes long to find it
    np.expm1(slope, out=slope)
    gap = np.vecdot(pi, slope)  # a sum that keeps the digits of a small u
    np.add(slope, 1, out=growth)
    np.multiply(growth, np.exp(log_x)[:, None], out=weight)
    np.add(u, weight, out=drop)
    drop -= target
    np.add(weight, 1, out=slope)
    drop /= slope
    weight /= slope
    growth *= pi
    fall = np.vecdot(growth, weight)
    step = (gap - np.vecdot(growth, drop)) / fall
    np.multiply(weight, step[:, None], out=slope)
    drop += slope
    return drop, step, fall
