r"""Minimise the regression of PMD over all policies, whatever weight the draws gave to each cell of responses.

$$ \min_u\; \tfrac12\sum_a w_a (u_a - \bar s_a)^2 \quad\text{subject to}\quad \sum_a \pi_a e^{u_a} = 1, $$

a sum over the cells that were drawn; the spread of the targets within a cell is a constant. There are three cases:

* The drawn cells have room, $\sum_{drawn}\pi_a e^{\bar s_a} \le 1$, and some cell was not drawn. Every target is met.
  The loss does not decide how undrawn cells share the remaining mass; here they keep their proportions, closest in KL.
* The targets ask for more than 1. Then $u_a = \bar s_a - W(\mu\pi_a e^{\bar s_a}/w_a)$ with the one mu > 0 that
  normalises, and undrawn cells lose all mass: they are not in the loss, so they pay first.
* The targets ask for less than 1 and every cell was drawn. Then mu < 0, the problem is not convex, and there can be
  several local minima: in each, at most one cell lies more than 1 nat above its target. The lowest is taken.
"""

from functools import partial

import numpy as np

from pmdkit.theory.between_update import fit_over, log_sum
from pmdkit.theory.checks import Array

GRID = 96  # points at which a root is searched for; the roots are then bisected


def fit_cells(pi: Array, share: Array, target: Array) -> Array:
    """[..., A] log ratios that minimise the regression over all policies; the top of this module lists the cases."""
    shape = np.broadcast_shapes(np.shape(pi), np.shape(share), np.shape(target))
    rows = [np.broadcast_to(x, shape).reshape(-1, shape[-1]) for x in (pi, share, target)]
    old, weight, s = rows
    seen = weight > 0
    log_pi = np.log(old)
    total = log_sum(np.where(seen, log_pi + s, -np.inf))
    unseen = np.where(seen, 0.0, old).sum(1)
    u = np.array(s)
    room, over, under = (total <= 0) & (unseen > 0), total > 0, (total < 0) & (unseen == 0)
    with np.errstate(divide="ignore"):  # nothing is left where the targets ask for all of it
        left = np.log(-np.expm1(np.minimum(total[room], 0))) - np.log(unseen[room])
    u[room] = np.where(seen[room], s[room], left[:, None])
    if over.any():
        u[over] = fit_over(log_pi[over], weight[over], s[over])
    if under.any():
        u[under] = fit_under(log_pi[under], weight[under], s[under])
    return u.reshape(shape)


def fit_under(log_pi: Array, weight: Array, s: Array) -> Array:
    """Targets that ask for less than 1, every cell drawn: the lowest of the local minima. Rows [R, A].

    With v = u - s the conditions are v_a e^(-v_a) = m e^(slope_a), m = -mu. All cells but one, the leader, take the
    small root v <= 1. m follows from the leader's own v, and a minimum is where the total rises through 1 with it.
    """
    slope = log_pi - np.log(weight) + s
    lowest, best = np.full(len(s), np.inf), np.array(s)
    steepest = slope.max(1)
    for leader in range(s.shape[1]):
        most = -(log_pi[:, leader] + s[:, leader])  # the v at which the leader alone has all mass
        # the others have a small root if v - log v >= 1 + ahead, the lead of the steepest; solved by iteration
        ahead = steepest - slope[:, leader]
        least = 1 + ahead
        for _ in range(60):
            least = 1 + ahead + np.log(least)
        total = partial(log_total, log_pi, s, slope, leader)

        # v <= 1, for the steepest cell alone: the total rises all the way
        end = np.minimum(most, 1.0)
        low, high = np.full(len(s), -80.0), np.log(end)
        consider = (ahead == 0) & (total(end) >= 0)
        candidates = [(consider, low, high)]
        # v > 1: the total may fall first; what rises last is the leader's own mass
        place = least[:, None] + (most - least)[:, None] * np.sin(np.linspace(0, np.pi / 2, GRID)) ** 2
        totals = np.stack([total(v) for v in place.T], 1)
        totals[:, -1] = np.maximum(totals[:, -1], 0.0)
        rises = (totals[:, :-1] < 0) & (totals[:, 1:] >= 0) & (most > least)[:, None]
        last = rises.shape[1] - 1 - rises[:, ::-1].argmax(1)
        ends = [np.log(np.maximum(np.take_along_axis(place, (last + k)[:, None], 1)[:, 0], 1e-300)) for k in (0, 1)]
        candidates.append((rises.any(1), *ends))
        for possible, low, high in candidates:
            for _ in range(64):
                middle = (low + high) / 2
                under = total(np.exp(middle)) < 0
                low, high = np.where(under, middle, low), np.where(under, high, middle)
            u = lifted(s, slope, leader, np.exp((low + high) / 2))
            loss = np.where(possible, (weight * (u - s) ** 2).sum(1), np.inf)
            better = loss < lowest
            lowest, best = np.where(better, loss, lowest), np.where(better[:, None], u, best)
    assert np.isfinite(lowest).all(), "every target has a nearest policy; please report pi, reward, tau and n"
    return best


def lifted(s: Array, slope: Array, leader: int, v: Array) -> Array:
    """[R, A] log ratios when the leader is v above its target and the others are at the corresponding small root."""
    z = (np.log(v) - v - slope[:, leader])[:, None] + slope
    u = s + small_root(np.maximum(-z, 1.0))
    u[:, leader] = s[:, leader] + v
    return u


def small_root(z: Array) -> Array:
    """The v <= 1 with v e^(-v) = e^(-z), z >= 1: Newton on e^y - y = z for y = log v, which is convex."""
    root = np.sqrt(2 * (z - 1))
    y = np.where(z < 3, -root - root**2 / 6, -z)  # near z = 1 both roots meet in a parabola
    for _ in range(6):
        slope = -np.expm1(y)
        y = np.minimum(y + (np.exp(y) - y - z) / np.where(slope > 0, slope, 1), 0.0)
    return np.exp(y)


def log_total(log_pi: Array, s: Array, slope: Array, leader: int, v: Array) -> Array:
    """[R] log of the mass of the policy of `lifted`; v is kept above 0, where the leader has no root."""
    return log_sum(log_pi + lifted(s, slope, leader, np.maximum(v, 1e-300)))
