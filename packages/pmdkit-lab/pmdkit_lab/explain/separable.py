"""Global solution of losses whose rows depend on one ratio each: one curve per response and one multiplier.

    minimise sum_y pi_old(y) h_y(z_y)   over   z >= 0, sum_y pi_old(y) z_y = 1,   z = pi/pi_old

If for some multiplier mu and some z on the simplex every z_y minimises h_y(z) - mu z, then no policy has a lower loss,
whatever the shape of h_y, and every other best policy has the same property. So kinks, jumps of the slope, flat
stretches and responses that lose all probability need no separate proof. If no multiplier fits, the loss is not convex
where it matters, and all resting points are searched for.
"""

from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pmdkit_lab.explain.certificate import Certificate
from pmdkit_lab.explain.curves import FADED, LOW, Curves, by_ratio
from pmdkit_lab.explain.tabular import Array, population_loss

Mask = NDArray[np.bool_]
Piece = tuple[int, int, bool]

ROUNDS = 14
TRIED = 257  # ratios of a response in a round of `refine`: each shrinks its interval by 256
SAME = 1e-11  # of the largest slope: two slopes closer than this are equal
POINT = 1e-3  # of the ratio: a stretch of equally good ratios shorter than this is one point
CLOSE = 1e-4  # of the largest slope: losses on the grid that differ by less are recomputed to rounding
FEW = 8  # resting points that are recomputed at most
FLAT = 3e-14  # of the largest slope: a stretch whose slopes differ by more is only nearly flat


@dataclass(frozen=True)
class Minimum:
    """The policy with the lowest loss, or why there is none.

    Attributes:
        kind, unique, certificate: as in the `StationaryPoint` of solver.py, which is made of them.
        log_ratio: [A] nats, -inf for a response that loses all; if there are many policies, one in their middle.
    """

    kind: Literal["minimiser", "plateau", "boundary", "unbounded", "not settled"]
    unique: bool | None
    log_ratio: Array
    certificate: Certificate

    def proved(self, proof: str, rivals: int | None = None) -> "Minimum":
        """This minimum with the proof that it is the smallest, and the number of other stationary points."""
        return replace(self, certificate=replace(self.certificate, proof=proof, rivals=rivals))


def minimise(curves: Curves) -> Minimum:
    """The policy at which the derivative of every h_y is one multiplier."""

    def unsettled(why: str, rivals: int | None = None) -> Minimum:
        nothing = Certificate("", np.nan, 0.0, np.nan, np.nan, (), curves.convex, rivals, why)
        return Minimum("not settled", None, np.zeros(len(curves.pi)), nothing)

    if "falls" in curves.tail:
        why = Certificate("tail", np.nan, 0.0, -np.inf, np.nan, (), curves.convex, None)
        return Minimum("unbounded", False, np.zeros(len(curves.pi)), why)
    if "unclear" in curves.tail:
        return unsettled("what the loss does as a probability goes to 0")
    if curves.scale == 0:
        return unsettled("a gradient that is 0 but for the corners of the simplex")
    # The hulls give a first multiplier, whatever the shape of the curves. If the curves are convex, that is the answer
    # but for rounding. If not, a gap may be left at every multiplier; then all resting points are listed, first without
    # a bound and, where they are too many, only those that Lagrange's bound does not exclude.
    low, high, multiplier = hull_bracket(curves)
    found = refine(curves, low, high)
    if curves.convex:
        return unsettled(found) if isinstance(found, str) else found.proved("convex in pi", rivals=0)
    candidates, bounded = resting_points(curves), False
    if candidates is None and isinstance(found, str):
        candidates, bounded = resting_points(curves, can_be_best(curves, low, high, multiplier)), True
    if candidates is None:
        return unsettled(found) if isinstance(found, str) else found.proved("multiplier")
    proof = "multiplier"
    if isinstance(found, str):
        if not candidates:
            return unsettled(found, 0)
        proof, found = "enumeration", lowest(curves, candidates)
        if isinstance(found, str):
            return unsettled(found, None if bounded else len(candidates))
    shown = np.maximum(found.log_ratio, LOW)
    distance = min(
        (float(np.abs(np.maximum(candidate.log_ratio, LOW) - shown).max()) for candidate in candidates), default=np.inf
    )
    if not candidates or (distance > 0.1 and found.unique):
        if proof == "enumeration":
            return unsettled("two searches that disagree", len(candidates))
        return found.proved(proof)
    return found.proved(proof, None if bounded else len(candidates) - 1)


@dataclass(frozen=True)
class Candidate:
    """A resting point as the grid shows it: log ratios, the places between which it lies, its loss, and whether one
    response whose derivative falls holds it."""

    log_ratio: Array
    low: NDArray[np.int64]
    high: NDArray[np.int64]
    loss: float
    falling: bool


def lowest(curves: Curves, candidates: list[Candidate]) -> Minimum | str:
    """The resting point with the lowest loss, solved to rounding; or a sentence that says why it cannot be found."""
    close = [candidate for candidate in candidates if candidate.loss - candidates[0].loss < CLOSE * curves.scale]
    if len(close) > FEW or (len(close) > 1 and not curves.integrable):
        return "several resting points whose losses are as good as equal"
    ends: list[tuple[float, Minimum]] = []
    for candidate in close:
        end = (
            with_falling_derivative(curves, candidate)
            if candidate.falling
            else refine(curves, candidate.low, candidate.high, alone=False)
        )
        if isinstance(end, str):
            return end
        loss = population_loss(curves.objective, curves.problem, np.maximum(end.log_ratio, -700)).loss[0]
        ends.append((float(loss), end))
    ends.sort(key=lambda each: each[0])
    apart = [np.exp(end.log_ratio) - np.exp(ends[0][1].log_ratio) for _, end in ends[1:]]
    tied = [loss - ends[0][0] <= 1e-9 * curves.scale for loss, _ in ends[1:]]
    if any(same and np.abs(away).max() > 1e-6 for same, away in zip(tied, apart, strict=True)):
        return "two resting points with the same loss"
    return ends[0][1]


def can_be_best(curves: Curves, low: NDArray[np.int64], high: NDArray[np.int64], multiplier: float) -> Mask:
    """[K, A] which places of the curves a best policy can hold, by the Lagrangian bound at the multiplier of the hulls.

    No policy has a lower loss than mu + sum_y pi_old(y) min_z (h_y - mu z). One policy is known: the ratios of the
    hulls, filled up to probability 1. Its loss above the bound limits the sum of all excesses h_y - mu z - min of a
    best policy.
    """
    pi, z = curves.pi, np.exp(curves.u)
    above = curves.u > LOW
    over = np.where(above, curves.value - multiplier * z, np.inf)
    least = np.minimum(over.min(0), np.minimum(curves.limit, np.where(above, np.inf, curves.value).min(0)))
    excess = over - least
    columns = np.arange(len(pi))
    ends = [np.where(place < 0, 0.0, z[np.maximum(place, 0), columns]) for place in (low, high)]
    ratio, left = np.minimum(*ends), 1 - float(pi @ np.minimum(*ends))
    for y in np.argsort(np.abs(ends[1] - ends[0]) * pi):  # the response with the longest gap is split
        more = float(np.clip(left / pi[y], 0, max(ends[1][y] - ratio[y], 0)))
        ratio[y], left = ratio[y] + more, left - pi[y] * more
    ratio = ratio * (1 if left <= 0 else 1 / (1 - left))  # correct for rounding
    own = [float(np.interp(ratio[y], z[above[:, y], y], excess[above[:, y], y])) for y in columns]
    gap = float(pi @ np.array(own)) * 1.01 + CLOSE * curves.scale
    allowed: Mask = pi * excess <= gap
    return allowed


def resting_points(curves: Curves, allowed: Mask | None = None) -> list[Candidate] | None:
    """Every policy that no small change improves, lowest loss first; None if there are too many combinations.

    If `allowed` is given, only those that hold an allowed place of every curve.

    Each curve is cut where its derivative turns. At a resting point all derivatives are equal, and at most one response
    is on a piece where its derivative falls, which is concave: moving probability between two such responses would
    lower the loss. With one, the total probability at a multiplier must fall as the multiplier rises.
    """
    size, above = len(curves.pi), np.flatnonzero((curves.u > LOW).all(1))
    u, derivative, value = curves.u[above], curves.derivative[above], curves.value[above]
    pieces = [cut_at_turns(derivative[:, y], 1e-6 * curves.scale) for y in range(size)]
    if allowed is not None:
        pieces = [
            [piece for piece in each if allowed[above[piece[0] : piece[1] + 1], y].any()]
            for y, each in enumerate(pieces)
        ]
    rising = [[piece for piece in each if piece[2]] for each in pieces]
    if np.prod([len(each) for each in rising]) > 1000 or any(not each for each in rising):
        return None
    every, near = np.unique(derivative), np.unique(derivative[u > -4])
    some = [every[:: max(len(every) // 500, 1)], near[:: max(len(near) // 5000, 1)]]
    multipliers = np.unique(np.concatenate([every[:1] - 1, *some, every[-1:] + 1]))
    ratios = {
        (y, piece): held_on(multipliers, derivative[:, y], np.exp(u[:, y]), piece, len(u))
        for y in range(size)
        for piece in pieces[y]
    }
    found: list[Candidate] = []
    for chosen in product(*rising):
        ways: list[tuple[Piece, ...]] = [chosen]
        ways += [
            (*chosen[:y], piece, *chosen[y + 1 :])
            for y in range(size)
            if chosen[y] is rising[y][0]  # once, whatever this response holds in `chosen`
            for piece in pieces[y]
            if not piece[2]
        ]
        for way in ways:
            falling = not all(piece[2] for piece in way)
            excess = sum(curves.pi[y] * ratios[y, piece] for y, piece in enumerate(way)) - 1
            with np.errstate(invalid="ignore"):
                down, up = (excess[:-1] > 0) & (excess[1:] <= 0), (excess[:-1] < 0) & (excess[1:] >= 0)
            for k in np.flatnonzero(down if falling else up):
                part = excess[k] / (excess[k] - excess[k + 1])
                z = np.array(
                    [ratios[y, p][k] + part * (ratios[y, p][k + 1] - ratios[y, p][k]) for y, p in enumerate(way)]
                )
                places = np.array([np.searchsorted(np.exp(u[:, y]), z[y]) for y in range(size)]).clip(1, len(u) - 1)
                columns = np.arange(size)
                lower, upper = np.exp(u[places - 1, columns]), np.exp(u[places, columns])
                share = ((z - lower) / (upper - lower)).clip(0, 1)
                loss = float(curves.pi @ (value[places - 1, columns] * (1 - share) + value[places, columns] * share))
                ends = [(piece[0], piece[1]) for piece in way]
                low = np.array([max(place - 2, a) for place, (a, _) in zip(places, ends, strict=True)]) + above[0]
                high = np.array([min(place + 1, b) for place, (_, b) in zip(places, ends, strict=True)]) + above[0]
                found.append(Candidate(np.log(np.maximum(z, np.exp(LOW))), low, high, loss, falling))
    found.sort(key=lambda candidate: candidate.loss)
    unlike: list[Candidate] = []
    for candidate in found:
        if all(np.abs(candidate.log_ratio - other.log_ratio).max() > 0.05 for other in unlike):
            unlike.append(candidate)
    return unlike


def with_falling_derivative(curves: Curves, candidate: Candidate) -> Minimum | str:
    """Solve for a resting point with one response on a falling derivative, by Newton.

    The derivative of that response is the multiplier, and the others rest where theirs cross it, smoothly or at a kink.
    """
    size, columns = len(curves.pi), np.arange(len(curves.pi))
    low, high = curves.u[candidate.low, columns], curves.u[candidate.high, columns]
    falling = curves.derivatives(high[None])[0] < curves.derivatives(low[None])[0]
    if falling.sum() != 1:
        return "the resting point with the lowest loss is held by one response whose derivative falls"
    multiplier = float(curves.derivatives(candidate.log_ratio[None])[0][falling][0])
    for _ in range(60):
        middle = (low + high) / 2
        under = curves.derivatives(middle[None])[0] < multiplier
        low, high = np.where(under, middle, low), np.where(under, high, middle)
    u = np.where(falling, candidate.log_ratio, (low + high) / 2)
    none = np.zeros(size, bool)
    kink = kinks_at(curves, u) & ~falling
    u, multiplier = polish(curves, u, multiplier, ~kink, none)
    if np.abs(u - candidate.log_ratio).max() > 0.1 or u.min() <= LOW:
        return "the resting point with the lowest loss is held by one response whose derivative falls"
    return certify(curves, u, multiplier, u, u, ~kink, none, kink, none, many=False, alone=False)


def kinks_at(curves: Curves, u: Array) -> Mask:
    """[A] whether the derivative jumps up at these log ratios."""
    nearby = u + np.array([-1e-6, -1e-8, 1e-8, 1e-6])[:, None]
    around = curves.derivatives(nearby)
    sharp, wide = around[2] - around[1], around[3] - around[0]
    jumps: Mask = (sharp > 1e-7 * curves.scale) & (sharp > 0.5 * wide)
    return jumps


def cut_at_turns(derivative: Array, small: float) -> list[Piece]:
    """Maximal stretches (first place, last place, rising), ignoring turns smaller than `small`.

    A curve whose derivative falls at its start has a rising piece of that point alone, and likewise at its end.
    """
    pieces: list[Piece] = []
    start, best, rising = 0, 0, True
    for k in range(1, len(derivative)):
        ahead = derivative[k] >= derivative[best] if rising else derivative[k] <= derivative[best]
        if ahead:
            best = k
        elif abs(derivative[k] - derivative[best]) > small + 1e-9 * abs(derivative[best]):
            pieces.append((start, best, rising))
            start, best, rising = best, k, not rising
    pieces.append((start, best, rising))
    if not rising:
        pieces.append((len(derivative) - 1, len(derivative) - 1, True))
    return pieces


def held_on(multipliers: Array, derivative: Array, ratio: Array, piece: Piece, size: int) -> Array:
    """[M] the ratio at each multiplier on one piece of a curve; NaN where the derivative never has that value."""
    first, last, rising = piece
    mine, z = derivative[first : last + 1], ratio[first : last + 1]
    mine, z = (np.maximum.accumulate(mine), z) if rising else (np.minimum.accumulate(mine)[::-1], z[::-1])
    held: Array = np.interp(multipliers, mine, z)
    held = np.where((multipliers < mine[0]) & ~(rising and first == 0), np.nan, held)
    held = np.where((multipliers > mine[-1]) & ~(rising and last == size - 1), np.nan, held)
    return np.where((multipliers < mine[0]) & (rising and first == 0), 0.0, held)


def hull_bracket(curves: Curves) -> tuple[NDArray[np.int64], NDArray[np.int64], float]:
    """[A] the lowest and highest place of the grid between which each response's best ratio lies, and the multiplier.

    The lower convex hull of a curve holds its smallest values for every multiplier. Water-filling: probability goes to
    the segments of all hulls in the order of their slopes, and the multiplier is the slope at which it is used up.
    """
    size, z = len(curves.pi), np.exp(curves.u)
    rises, amounts, ends = [], [], []  # of the segments of each hull: slope, probability, and places of the corners
    for y in range(size):
        inside = np.flatnonzero(curves.u[:, y] >= LOW)
        below = curves.value[: inside[0], y]
        zero = min(float(below.min(initial=np.inf)), float(curves.limit[y]))
        places = inside
        xs, ys = z[inside, y], curves.value[inside, y]
        if np.isfinite(zero):
            places, xs, ys = np.append(-1, places), np.append(0.0, xs), np.append(zero, ys)
        corners = lower_hull(xs, ys)
        rises.append(np.diff(ys[corners]) / np.diff(xs[corners]))
        amounts.append(curves.pi[y] * np.diff(xs[corners]))
        ends.append(places[corners])
    slope, amount = np.concatenate(rises), np.concatenate(amounts)
    order = np.argsort(slope, kind="stable")
    full = int(np.searchsorted(amount[order].cumsum(), 1 - 1e-12))
    mu = slope[order][min(full, len(order) - 1)]
    # chords of a smooth curve differ from its slopes by the square of the grid spacing
    slack = 2e-4 * (curves.scale + abs(mu))
    low = np.array([ends[y][(rises[y] < mu - slack).sum()] for y in range(size)])
    high = np.array([ends[y][(rises[y] <= mu + slack).sum()] for y in range(size)])
    return low, high, float(mu)


def lower_hull(x: Array, y: Array) -> Array:
    """Places of the corners of the lower convex hull of points with ascending x."""
    kept: list[int] = []
    for k in range(len(x)):
        while len(kept) > 1:
            i, j = kept[-2], kept[-1]
            if (y[j] - y[i]) * (x[k] - x[i]) >= (y[k] - y[i]) * (x[j] - x[i]):
                kept.pop()
            else:
                break
        kept.append(k)
    return np.array(kept)


def refine(curves: Curves, first: NDArray[np.int64], last: NDArray[np.int64], alone: bool = True) -> Minimum | str:
    """The multiplier and the ratios between the given places of the grid, and everything that certifies them.

    Each round tries TRIED ratios per response and keeps those whose derivative can be the multiplier. So the interval
    shrinks onto a smooth solution, a kink, or a flat stretch, whichever is there.
    """
    pi, size, tol = curves.pi, len(curves.pi), SAME * curves.scale
    columns, top = np.arange(size), -np.log(curves.pi)
    low = np.maximum(curves.u[np.maximum(first - 2, 0), columns], LOW)
    high = curves.u[np.minimum(last + 2, len(curves.u) - 1), columns]
    share = np.linspace(0, 1, TRIED)[:, None]
    least, most = -np.inf, np.inf
    for sweep in range(3 * ROUNDS):
        u = low + (high - low) * share
        derivative = np.maximum.accumulate(curves.derivatives(u), axis=0)
        if not np.isfinite(derivative).all():
            return "the gradient is not finite near the solution"
        least, most = multiplier_bounds(derivative, pi * np.exp(u))
        left, right = (derivative[0] > most + tol) & (low > LOW), (derivative[-1] < least - tol) & (high < top - 1e-9)
        width = high - low
        if sweep < ROUNDS and (left.any() or right.any()):  # the solution lies outside
            low = np.where(left, np.maximum(low - 2 * width - 0.02, LOW), low)
            high = np.where(right, np.minimum(high + 2 * width + 0.02, top), high)
            continue
        under, over = derivative < least - tol, derivative > most + tol
        low = np.where(under.any(0), u[np.maximum(under.sum(0) - 1, 0), columns], low)
        high = np.where(over.any(0), u[np.minimum(TRIED - over.sum(0), TRIED - 1), columns], high)
        if (high - low >= 0.5 * width).all() and sweep > ROUNDS:
            break
    multiplier = float((max(least, -1e300) + min(most, 1e300)) / 2)
    return classify_shares(curves, low, high, multiplier, alone)


def multiplier_bounds(derivative: Array, mass: Array) -> tuple[float, float]:
    """The lowest and the highest multiplier at which all probability is used, as far as the grid can tell."""
    values, columns = np.unique(derivative), range(derivative.shape[1])

    def held(side: Literal["left", "right"]) -> Array:
        """[V] probability at each multiplier: to the first ratio above it ("right") or the last one below ("left")."""
        places = [np.searchsorted(derivative[:, y], values, side) - (side == "left") for y in columns]
        shares = [mass[k.clip(0, len(derivative) - 1), y] for y, k in zip(columns, places, strict=True)]
        return np.sum(shares, 0)

    a = min(int((held("right") < 1).sum()), len(values) - 1)
    c = max(int((held("left") <= 1).sum()) - 1, 0)
    return float(min(values[a], values[c])), float(max(values[a], values[c]))


def classify_shares(curves: Curves, low: Array, high: Array, multiplier: float, alone: bool) -> Minimum | str:
    """Classify every response as resting smoothly, at a kink, on a flat stretch or at 0; then certify the solution."""
    pi, scale, size = curves.pi, curves.scale, len(curves.pi)
    u = (low + high) / 2
    ends = curves.derivatives(np.stack([low, u, high]))
    flat = np.exp(high) - np.exp(low) > POINT * np.exp(high)
    gone = np.zeros(size, bool)
    for y in np.flatnonzero((low <= LOW) & ((ends[0] >= multiplier) | flat)):
        root = far_root(curves, int(y), multiplier)
        if root is None:
            if flat[y]:  # all ratios down to 0 are equally good
                low[y] = -np.inf
            else:
                gone[y] = True
        elif np.isnan(root):
            return "whether a response keeps a probability that no number can hold"
        else:
            u[y], flat[y] = root, False
    if size - gone.sum() == 1:  # the only one left has all the probability
        u, flat = np.where(gone, u, -np.log(pi)), np.zeros(size, bool)
        multiplier = max(multiplier, float(ends[2][~gone][0]))
    if flat.any():
        bottom = np.maximum(low, LOW / 2)  # where a ratio can be distinguished from 0
        inside = bottom + (np.maximum(high, bottom) - bottom) * np.linspace(0.01, 0.99, 9)[:, None]
        stretch = curves.derivatives(inside)[:, flat]
        multiplier = float(np.median(stretch))
        if np.abs(stretch - multiplier).max() > FLAT * scale:
            return "a loss that is nearly, but not quite, flat where it is smallest"
    at_end = u > -np.log(pi) - 1e-9
    kink = ~gone & ~flat & ~at_end & (u > LOW) & kinks_at(curves, u)
    smooth = ~gone & ~flat & ~kink & ~at_end
    if flat.any():
        z = np.where(gone, 0.0, np.exp(u))
        least, most = np.where(flat, np.exp(low), z), np.where(flat, np.exp(high), z)
        free = 1 - float(pi @ least)
        room = float(pi @ (most - least))
        if not -1e-9 <= free <= room + 1e-9:
            return "how much probability the flat stretches hold"
        part = min(max(free / room, 0.0), 1.0)
        z = least + part * (most - least)
        many = flat.sum() > 1 and 1e-7 < part < 1 - 1e-7
        if not many and (np.isneginf(low[flat]).any() and part <= 1e-7):
            gone |= flat & np.isneginf(low)
            z = np.where(gone, 0.0, z)
        with np.errstate(divide="ignore"):
            u = np.log(z)
    else:
        many = False
        u, multiplier = polish(curves, u, multiplier, smooth, gone)
    return certify(curves, u, multiplier, low, high, smooth, flat, kink, gone, many, alone)


def far_root(curves: Curves, y: int, multiplier: float) -> float | None:
    """Where a response with hardly any probability rests; None if it loses all, NaN if that cannot be determined."""
    below = np.flatnonzero(curves.u[:, y] <= LOW)
    u, slope = curves.u[below, y], curves.slope[below, y]
    if curves.tail[y] == "barrier":
        pull = slope - multiplier * np.exp(u)
        turn = np.flatnonzero(pull > 0)
        return float(u[max(turn[0] - 1, 0)] + u[turn[0]]) / 2 if len(turn) and turn[0] > 0 else np.nan
    counted = (slope != 0) & (u > -700)
    wants_more = by_ratio(slope, u)[counted] < multiplier - 1e-9 * curves.scale
    places = u[counted]
    if not wants_more.any():
        derivatives, depth = by_ratio(slope, u)[counted & (u < -50)], u[counted & (u < -50)]
        if len(derivatives) < 9 or derivatives[0] >= derivatives[-1] or np.ptp(derivatives) <= 1e-9 * curves.scale:
            return None
        line = np.polyfit(depth, derivatives, 1)
        if (
            np.abs(np.polyval(line, depth) - derivatives).max() <= 1e-9 * curves.scale
        ):  # the logarithm of KL, extrapolated
            return float((multiplier - line[1]) / line[0])
        return None if np.ptp(derivatives) <= 1e-3 * curves.scale else np.nan
    deepest = places[wants_more].max()
    if wants_more[places <= deepest].all() and (places.min() < FADED or curves.u[0, y] > FADED):
        above = places[places > deepest]
        return float((deepest + (above.min() if len(above) else LOW)) / 2)
    return None if places.min() > 2 * LOW else np.nan  # noise of a curve that has rounded to 0


def polish(curves: Curves, u: Array, multiplier: float, smooth: Mask, gone: Mask) -> tuple[Array, float]:
    """Newton on the smooth responses and the multiplier together; the others stay where they are."""
    pi = curves.pi
    if not smooth.any():
        return np.where(gone, -np.inf, u), multiplier
    shown = np.where(gone, LOW, u)

    def state(u: Array, mu: float) -> tuple[Array, float]:
        slope = curves.slopes(u[None])[0]
        force = np.where(smooth, slope - mu * np.exp(u), 0.0)
        return force, float((pi * np.exp(u))[~gone].sum() - 1)

    force, excess = state(shown, multiplier)
    for _ in range(12):
        width = 1e-5
        both = curves.slopes(np.stack([shown - width, shown + width]))
        bend = np.where(smooth, (both[1] - both[0]) / (2 * width) - multiplier * np.exp(shown), 1.0)
        bend = np.where(bend == 0, np.inf, bend)  # a ratio that has underflowed changes no sum
        # force + bend du = dmu e^u, sum pi e^u du = -excess
        weight = np.where(smooth, pi * np.exp(2 * shown) / bend, 0.0).sum()
        if weight == 0 or not np.isfinite(weight):
            break
        more = (float((pi * np.exp(shown) * force / bend)[smooth].sum()) - excess) / weight
        move = np.where(smooth, (more * np.exp(shown) - force) / bend, 0.0)
        trial = shown + np.clip(move, -1, 1)
        after, off = state(trial, multiplier + more)
        if not np.isfinite(after).all() or np.abs(after).max() + abs(off) > np.abs(force).max() + abs(excess):
            break
        shown, multiplier, force, excess = trial, multiplier + more, after, off
    return np.where(gone, -np.inf, shown), float(multiplier)


def certify(
    curves: Curves,
    u: Array,
    multiplier: float,
    low: Array,
    high: Array,
    smooth: Mask,
    flat: Mask,
    kink: Mask,
    gone: Mask,
    many: bool,
    alone: bool,
) -> Minimum | str:
    """Check the solution against the objective itself: derivatives on either side, and every ratio of the grid."""
    pi, scale, size = curves.pi, curves.scale, len(curves.pi)
    columns = np.arange(size)
    z = np.where(gone, 0.0, np.exp(u))
    shown = np.where(gone, LOW, u)
    near = 1e-9
    points = np.stack([shown - near, shown, shown + near, shown - 1e-5, shown + 1e-5])
    slopes = curves.slopes(points)
    before, at, behind = (slopes[k] - multiplier * np.exp(points[k]) for k in range(3))
    ended = shown > -np.log(pi) - 1e-9
    missed = np.where(kink, np.maximum(before, -behind).clip(min=0), np.abs(at))
    missed = np.where(gone, -by_ratio(at.clip(max=0), shown), missed)  # at probability 0, more must cost more
    missed = np.where(ended & ~gone, at.clip(min=0), missed)
    residual = float(missed.max())
    off = abs(float(pi @ z) - 1)
    if residual > 1e-7 * max(scale, abs(multiplier)) or off > 1e-8:
        return f"the search ended {residual:.1e} from one common derivative"
    bends = (slopes[4] - slopes[3]) / 2e-5 - multiplier * np.exp(shown)
    free = smooth & (shown > FADED)
    # the smallest curvature of any move of the smooth responses; their sum is fixed unless another one is flat
    curvature = float(bends[free].min(initial=np.inf))
    if free.sum() == 1 and not flat.any():
        curvature = np.inf
    elif not (flat.any() or (bends[free] > 0).all()):
        across = np.linalg.svd((np.sqrt(pi) * z)[free][:, None])[0][:, 1:]
        curvature = float(np.linalg.eigvalsh(across.T @ (bends[free][:, None] * across)).min())
    # check every ratio of the grid, and 0: none may be better, and none far away equally good
    seen = population_loss(curves.objective, curves.problem, shown[None])
    own = seen.rows[0] / pi
    if not curves.integrable:
        place = np.array([np.searchsorted(curves.u[:, y], shown[y], "right") - 1 for y in columns])
        own = (
            curves.value[place, columns]
            + (shown - curves.u[place, columns]) * (curves.slope[place, columns] + slopes[1]) / 2
        )
    if gone.any():
        lowest = np.array(
            [min(curves.limit[y], curves.value[curves.u[:, y] < LOW, y].min(initial=np.inf)) for y in columns]
        )
        own = np.where(gone, lowest, own)
    best = own - multiplier * z
    grid = np.exp(curves.u)
    ahead = curves.value - multiplier * grid - best
    at_zero = curves.limit - best
    loud = np.abs(curves.value).max(initial=0.0, where=curves.u > LOW)
    least, most = np.where(flat, np.exp(low), z), np.where(flat, np.exp(high), z)
    away = np.maximum(least - grid, grid - most).clip(min=0)
    rounding = (1e-10 if curves.integrable else 1e-6) * scale
    slack = rounding * np.minimum(1, away) + 1e-13 * loud + 1e-12 * scale
    above = curves.u > LOW
    margin = float(min(ahead[above].min(), at_zero.min()))
    if not curves.convex and alone:
        if (ahead < -slack)[above].any() or (at_zero < -rounding).any():
            return "the loss is not convex where it matters: a ratio far from the balance is better"
        elsewhere = away > 2e-5 + 0.02 * most
        if (ahead <= slack)[elsewhere & above].any():
            return "two ratios far apart are equally good"
        if (at_zero <= rounding)[least > 2e-5 + 0.02 * most].any():
            return "a probability of 0 is as good"
    if free.any() and not curvature > 0:
        return "the curvature at the solution is not positive"
    kinks = tuple(int(y) for y in np.flatnonzero(kink))
    why = Certificate("", residual, off, margin, curvature, kinks, curves.convex, None)
    kind: Literal["boundary", "plateau", "minimiser"] = "plateau" if many else "minimiser"
    return Minimum("boundary" if gone.any() else kind, not many, np.where(gone, -np.inf, u), why)
