"""One curve per response, from ratio 0 to its largest, for losses whose rows depend on one ratio each.

F(pi) = sum_y pi_old(y) h_y(z_y),   z = pi/pi_old
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from pmdkit.objectives import Objective
from pmdkit.randomness import generator
from pmdkit_lab.explain.tabular import Array, TabularPrompt, population_loss

Tail = Literal["barrier", "level", "falls", "unclear"]

LOW = -18.0  # nats: below this, a ratio changes no sum, and only the sign of its slope matters
FADED = -200.0  # nats: a curve that is still constant here has rounded to 0
FAR: Array = -np.array([1e3, 1e4, 1e6, 1e8])  # nats, where it is clear what becomes of a curve
WRONG_VALUE = 1e-6  # of the largest slope: further off, a loss is not the integral of its gradient


@dataclass(frozen=True)
class Curves:
    """One response's part of what the gradient descends, for every response, per unit of its old probability.

    Attributes:
        objective, problem: whose curves these are.
        u: [K, A] log ratios, ascending, from where the loss is finite up to probability 1.
        slope: [K, A] d h / d u. The derivative by the ratio is slope e^-u.
        value: [K, A] h; the integral of `slope` if the objective's loss is something else.
        tail: what each curve does as the ratio goes to 0: rises forever, levels off, falls forever, or unclear.
        limit: [A] h as the ratio goes to 0, for the level ones; else +inf or -inf, or NaN if unclear.
        fall: [A] slope of h by u far out, for those that fall.
        integrable: whether the loss is the integral of its gradient.
    """

    objective: Objective
    problem: TabularPrompt
    u: Array
    slope: Array
    value: Array
    tail: tuple[Tail, ...]
    limit: Array
    fall: Array
    integrable: bool

    @property
    def pi(self) -> Array:
        """[A] the old policy."""
        return self.problem.pi

    def slopes(self, u: Array) -> Array:
        """[K, A] d h / d u at other log ratios [K, A]."""
        slopes: Array = population_loss(self.objective, self.problem, u).pull / self.pi
        return slopes

    def derivatives(self, u: Array) -> Array:
        """[K, A] d h / d z at other log ratios."""
        return by_ratio(self.slopes(u), u)

    @property
    def derivative(self) -> Array:
        """[K, A] d h / d z."""
        return by_ratio(self.slope, self.u)

    @property
    def scale(self) -> float:
        """The largest derivative by a ratio near pi_old: the scale on which their differences are measured."""
        near, wide = ((self.u > low) & (self.u < share * self.u[-1]) for low, share in ((-1, 0.5), (-10, 0.9)))
        return float(np.abs(self.derivative[near]).max()) or float(np.abs(self.derivative[wide]).max())

    @property
    def convex(self) -> bool:
        """Whether the slope of every h by the ratio never falls, so that the problem is convex in pi."""
        seen = np.where(self.u > LOW, self.derivative, np.nan)
        with np.errstate(invalid="ignore"):
            drop = np.diff(seen, axis=0) < -1e-9 * (self.scale + np.abs(seen[1:]))
        return not bool(drop.any())


def separable(objective: Objective, problem: TabularPrompt, seed: int = 0) -> bool:
    """Whether the loss and the gradient of every row stay the same when the other ratios change."""
    size, rounds = len(problem.pi), 8
    draws = generator(seed, "explain", "separable")
    spread = np.array([0.1, 0.5, 1.0, 3.0, 0.1, 0.5, 1.0, 3.0])[:, None, None]
    own = (spread[:, :, 0] * draws.normal(size=(rounds, size))).clip(max=-np.log(problem.pi) - 1e-3)
    others = (spread * draws.normal(size=(rounds, size, size))).clip(max=-np.log(problem.pi) - 1e-3)
    mixed = others.copy()
    mixed[:, np.arange(size), np.arange(size)] = own
    alone = population_loss(objective, problem, own)
    among = population_loss(objective, problem, mixed.reshape(-1, size))
    for one, many in ((alone.rows, among.rows), (alone.pull, among.pull)):
        with_others = many.reshape(rounds, size, size)[:, np.arange(size), np.arange(size)]
        if not np.allclose(with_others, one, rtol=1e-9, atol=1e-12 * max(float(np.abs(one).max()), 1e-300)):
            return False
    return True


def curves(objective: Objective, problem: TabularPrompt) -> Curves | str:
    """The curve of every response on a grid; or a sentence if the loss is not finite where it should be."""
    top = -np.log(problem.pi)
    deep = -np.concatenate(
        [np.geomspace(1e5, -LOW, 300)[:-1], np.arange(-LOW, 0.5, -0.01), np.geomspace(0.5, 1e-7, 900)]
    )
    share = np.concatenate([[0.0], np.geomspace(1e-7, 0.1, 700)[:-1], np.linspace(0.1, 1, 600)[:-1]])
    share = np.concatenate([share, 1 - np.array([1e-4, 1e-6, 1e-9, 1e-12])])
    u = np.concatenate([np.tile(deep[:, None], (1, len(top))), share[:, None] * top])
    with np.errstate(all="ignore"):
        seen = population_loss(objective, problem, u)
        far = population_loss(objective, problem, np.tile(FAR[:, None], (1, len(top))))
    rows, slope = seen.rows / problem.pi, seen.pull / problem.pi
    known = np.isfinite(rows) & np.isfinite(slope)
    known[-1] = True  # a loss need not be finite at probability 1
    rows[-1], slope[-1] = (np.where(np.isfinite(x[-1]), x[-1], x[-2]) for x in (rows, slope))
    first = 0 if known.all() else int(np.flatnonzero(~known.all(1)).max()) + 1
    if u[first].max() > LOW:
        return "the loss or its gradient is not finite at a ratio that it should be asked at"
    late = np.diff(rows[-4:-1], axis=0)
    if ((late[0] < -1e-9 * np.ptp(rows[u[:, 0] > -1], axis=0)) & (late[1] < 0.5 * late[0])).any():
        return "the loss keeps falling as one probability goes to 1"
    u, rows, slope = u[first:], rows[first:], slope[first:]
    # whether the loss changes as its slope says
    step = np.diff(u, axis=0)
    change = np.diff(rows, axis=0) / step
    padded = np.concatenate([slope[:1], slope, slope[-1:]])
    around = np.stack([padded[:-3], padded[1:-2], padded[2:-1], padded[3:]])
    least, most = around.min(0), around.max(0)
    slack = (most - least) + WRONG_VALUE * np.abs(slope[u > -1]).max() + 1e-13 * np.abs(rows[1:]) / step
    integrable = not bool((((change < least - slack) | (change > most + slack)) & (u[1:] > LOW)).any())
    value = rows
    if not integrable:  # Simpson's rule
        halves = population_loss(objective, problem, (u[1:] + u[:-1]) / 2).pull / problem.pi
        parts = (slope[1:] + 4 * halves + slope[:-1]) / 6 * step
        value = np.concatenate([np.zeros((1, len(top))), parts.cumsum(0)])
    tails = [
        tail(
            u[0, y],
            slope[np.searchsorted(u[:, y], u[0, y] / 2), y],
            value[0, y],
            slope[0, y],
            far.rows[:, y] / problem.pi[y],
            far.pull[:, y] / problem.pi[y],
            float(np.ptp(value[u[:, y] > -1, y])),
            integrable,
        )
        for y in range(len(top))
    ]
    kinds, limits, falls = zip(*tails, strict=True)
    return Curves(objective, problem, u, slope, value, kinds, np.array(limits), np.array(falls), integrable)


def tail(
    start: float, middle: float, value: float, slope: float, rows: Array, pulls: Array, span: float, integrable: bool
) -> tuple[Tail, float, float]:
    """What a curve does below its first point `start`, its limit, and its slope where it falls.

    Args:
        middle, slope: the slope half-way to the first point, and at it.
        value: the value at the first point.
        rows, pulls: value and slope at FAR.
        span: how much the value changes near pi_old.
    """
    far = FAR
    if not (np.isfinite(pulls).all() and np.isfinite(rows).all()):  # the ratio underflows: use what was seen before
        if start > FADED:
            # what overflows upwards is a barrier; anything else has no answer
            rising = slope < 0 and value > 1e3 * max(span, 1e-300)
            return ("barrier", np.inf, 0.0) if rising else ("unclear", np.nan, 0.0)
        pulls, rows, far = np.array([slope]), np.array([value]), np.array([start])
    small = 1e-9 * max(span, 1e-300)
    seen = pulls if len(pulls) > 1 else np.append(middle, pulls)
    reach = np.abs(pulls) * np.abs(far)
    if (reach <= small).all():
        return "level", value, 0.0
    if (seen < 0).all() and (np.abs(seen) >= 0.5 * np.abs(seen[0])).all():
        return "barrier", np.inf, 0.0
    if (seen > 0).all() and (seen >= 0.5 * seen[0]).all():
        return "falls", -np.inf, float(seen[-1])
    if len(reach) > 1 and reach[-1] <= 1e-4 * reach[0] and integrable:  # fades faster than 1/|u|
        return "level", float(rows[-1]), 0.0
    return "unclear", np.nan, 0.0


def by_ratio(slope: Array, u: Array) -> Array:
    """d h / d z from d h / d u; where the ratio underflows only the sign is left."""
    with np.errstate(over="ignore", invalid="ignore"):
        derivative = np.where(slope == 0, 0.0, slope * np.exp(-u))
    return np.clip(derivative, -1e300, 1e300)
