"""PMD-mean's exact update (Theorem 1), also for responses with lengths.

`pmd_mean` checks its arguments; `solve_rows` cuts the rows into blocks; `solve` is Newton's method and the reference.
`FastSolver` and `pairs` are its fast twins, for long rows and for rows of two rewards.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pmdkit.theory.checks import Array, centred, excess, leading_shape, lengths, problem, ratio

Reals = NDArray[np.floating]

BLOCK = 32_768  # entries solved at a time: few calls, and arrays that still fit the cache
SMALL = -7.0  # a smaller log x hardly changes the sum over pi, so `solve` takes special care
MIN_FAST_ENTRIES = 4096  # with fewer, calls cost the fast twin more time than the arithmetic
FEW = 32  # actions; with fewer, its sums run over only a few numbers
LARGE = 1e5  # |delta| beyond this has few digits in single precision


@dataclass(frozen=True)
class MeanSolution:
    """The PMD-mean update.

    Attributes:
        log_ratio: [..., A] log pi_new/pi, nats.
        probs: [..., A] the new policy.
        lam: [...] the multiplier lambda, reward units squared; lambda / (2 tau) weighs the chi2 term.
    """

    log_ratio: Array
    probs: Array
    lam: Array


def pmd_mean(
    pi: ArrayLike | None = None,
    reward: ArrayLike | None = None,
    tau: ArrayLike | None = None,
    length: ArrayLike | None = None,
    *,
    log_pi: ArrayLike | None = None,
) -> MeanSolution:
    r"""The policy that minimises the PMD-mean population loss over the simplex.

    $$ u = \tfrac{\Delta}{\tau} - W\big(x\,|y|\,e^{\Delta/\tau}\big), \quad E_\pi e^u = 1, \quad x = \lambda/\tau^2 $$

    Source: arXiv:2602.05933, Theorem 1.
    Differs: with `length` it is the solution of the implemented loss, which divides each row by its length |y|;
    Theorem 1 is |y| = 1.

    Args:
        pi: [..., A] policy; must sum to 1 within 1e-8, and the problem solved is that of pi / sum(pi).
        reward: [..., A] reward units. Required. Only differences matter.
        tau: scalar or [...] temperature, reward units, > 0. Required.
        length: [..., A] tokens per action, > 0.
        log_pi: log-probabilities instead of `pi`.

    Returns:
        MeanSolution; leading dimensions broadcast. Where pi sees only one reward, nothing moves and lambda is 0.

    Good values: relative error below 1e-10 for tau in [1e-4, 1e4], pass rates in [1e-12, 1 - 1e-12].
    Watch: real rewards do not become greedy as tau goes to 0: the ratio tends to Delta_+ / E[Delta_+].
    """
    pi, reward, tau = problem(pi, reward, tau, log_pi)
    shape = (*leading_shape(pi, reward, tau=tau), pi.shape[-1])
    rows = [np.broadcast_to(array, shape).reshape(-1, shape[-1]) for array in (pi, reward)]
    if (size := lengths(length, shape)) is not None:
        rows.append(size.reshape(-1, shape[-1]))
    log_ratio, probs = np.empty(shape), np.empty(shape)
    flat = [array.reshape(-1, shape[-1]) for array in (log_ratio, probs)]
    with numpy_buffer(shape[-1]):
        log_x = solve_rows(*rows, tau=np.broadcast_to(tau, shape[:-1]).reshape(-1, 1), out=flat)
    lam = np.exp(log_x.reshape(shape[:-1]) + 2 * np.log(tau))  # lambda = x tau^2
    return MeanSolution(log_ratio, probs, lam)


def solve_rows(pi: Array, reward: Array, *length: Array, tau: Array, out: Sequence[Array]) -> Array:
    """Writes log-ratios and probabilities [S, A] to `out` and returns log x [S].

    If no row has more than two rewards, it solves by `pairs`, otherwise in blocks of rows.
    """
    if not length and (two := pairs(pi, reward)) is not None:
        with numpy_buffer(2):
            masses, ends = two.mass / two.mass.sum(1, keepdims=True), np.stack([two.high, two.low], -1)
            log_ratio = np.empty(masses.shape)
            log_x = solve_rows(masses, ends, tau=tau, out=[log_ratio, np.empty(masses.shape)])
        spread(pi, two.best, log_ratio, *out)
        return log_x
    (log_ratio, probs), log_x = out, np.empty(len(pi))
    fast = FastSolver(min(max(1, BLOCK // pi.shape[1]), len(pi)), pi.shape[1])
    for rows in blocks(pi):
        old, u, found = pi[rows], log_ratio[rows], log_x[rows]
        delta = centred(old, reward[rows])
        delta /= tau[rows]
        found[...] = np.nan if length else fast.solve(old, delta, u)  # NaN: `solve` has to
        if (rest := np.isnan(found)).any():
            u[rest], found[rest] = solve(old[rest], delta[rest], *(size[rows][rest] for size in length))
        probs[rows] = ratio(u)
        probs[rows] *= old
    return log_x


def solve(pi: Array, delta: Array, length: Array | None = None) -> tuple[Array, Array]:
    """Newton's method for u and log x together; one exponential per entry and sweep, and nothing that overflows.

    Args:
        pi: [S, A] policies, up to a factor per row.
        delta: [S, A] Delta / tau, with mean 0 under pi.
        length: [S, A] tokens |y|, or None for 1.

    Returns:
        u [S, A] and log x = log(lambda / tau^2) [S]; where every delta under pi is 0, u = delta and log x = -inf.
    """
    # Theorem 1 without its W. With delta for Delta / tau, x = lambda / tau^2 and w = x |y| e^u, the KKT conditions are
    #     f = u + w - delta = 0       for every action, so that w = W(x |y| e^delta)
    #     g = E_pi[e^u - 1] = 0       for every row
    total = pi.sum(1)

    def mean(values: Array) -> Array:
        return np.vecdot(pi, values) / total

    size = 1.0 if length is None else length
    longest = 1.0 if length is None else length.max(1)
    delta_plus = mean(np.maximum(delta, 0.0))
    equal = delta_plus == 0  # rows with one reward: u = delta and x = 0 solve them
    d = np.where(equal[:, None], 0.0, delta) if equal.any() else delta

    # Start: x by `first_x`, then u = delta - W(x |y| e^delta) with an approximate W.
    log_x = np.log(np.where(equal, 1.0, np.maximum(first_x(d, delta_plus, mean) / longest, 1e-320)))
    u = d - lambert_guess(d + log_x[:, None] + np.log(size))
    last = False
    for sweep in range(100):
        expm1_u = np.expm1(u)  # keeps the digits of a small u, and the sum g does not cancel
        exp_u = expm1_u + 1 if length is None else np.exp(u)  # lengths magnify the last digit of a small ratio
        w = size * np.exp(log_x)[:, None] * exp_u

        # The derivatives are df/du = 1 + w, df/dlog x = w, dg/du = pi e^u. Newton's step with u eliminated:
        #     dlog x = (g - E[e^u f / (1 + w)]) / E[e^u w / (1 + w)]
        #     du     = -(f + w dlog x) / (1 + w)
        inverse = 1 / (1 + w)
        f = u + w - d
        exp_u *= inverse
        exp_u *= pi
        slope = np.vecdot(exp_u, w)
        step = (np.vecdot(pi, expm1_u) - np.vecdot(exp_u, f)) / np.where(slope > 0, slope, 1)
        dlog_x = np.clip(step, -3, 3)  # g falls steadily in log x: short steps cannot miss
        if log_x.min() < SMALL:  # where x is small, g is linear in x itself: one step down is enough
            down = (step < 0) & (log_x < SMALL)
            dlog_x = np.where(down, np.log1p(np.maximum(step, 1e-10 - 1)), dlog_x)
        dlog_x = np.where(equal, 0, dlog_x)
        f += w * dlog_x[:, None]
        f *= inverse
        u -= f  # f is now -du

        left = np.abs(dlog_x)
        if sweep > 20 and log_x.min() < SMALL:  # a tiny x drowns in the rounding of g, and u does not depend on it
            effect = left * (w * inverse).max(1)
            left = np.where((log_x < SMALL) & (effect <= 1e-12 * np.abs(u).max(1)), 0, left)
        log_x += dlog_x
        if max(left.max(), f.max(), -f.min()) < 1e-7:  # Newton's remaining error is the square of this,
            if last or log_x.min() >= SMALL:
                break
            last = True  # divided by x: one more sweep if x is small
    else:
        raise ArithmeticError("PMD-mean: Newton did not converge in 100 sweeps; please report pi, reward and tau")

    # E f = 0 with E delta = 0 reads x E[|y| e^u] = -E u = E[e^u - 1 - u]: positive terms keep the digits of a small x.
    if log_x.min() < SMALL:
        log_x = np.log(np.maximum(mean(excess(u)) / mean(size * np.exp(u)), 1e-320))
    if equal.any():
        u, log_x = np.where(equal[:, None], delta, u), np.where(equal, -np.inf, log_x)
    return u, log_x


def first_x(delta: Array, delta_plus: Array, mean: Callable[..., Array]) -> Array:
    """[S] an estimate of x: the smaller of the paper's bound log A, A = E e^delta, and x^2 = E delta_+ (1 + E delta_+).

    On hard prompts the second law is y (1 - e^-y) = p/tau, to within a few per cent.
    """
    log_a = np.log1p(mean(np.expm1(np.minimum(delta, 600.0))))
    return np.minimum(log_a, np.sqrt(delta_plus * (1 + delta_plus)))


def lambert_guess(z: Array) -> Array:
    """W(e^z) to one per cent, from a = log(1 + e^z): a (1 - log(1 + a) / (2 + a)) (Winitzki's approximation)."""
    a = np.maximum(z, np.log(2 + np.expm1(np.minimum(z, 700.0))))
    return a * (1 - np.log(1 + a) / (2 + a))


class FastSolver:
    """The fast twin of `solve` for rows without lengths: Newton in single precision, then a few sweeps in double.

    Single precision brings u and log x close at a third of the cost. Sweeps in double precision follow, each with a
    second-order step in place of another exponential. Where that may not give all digits, the twin declines and
    `solve` takes over. Its arrays hold one block and are allocated once for all blocks of a call.
    """

    def __init__(self, rows: int, actions: int) -> None:
        self.single = np.empty((7, rows, actions), np.float32)
        self.double = np.empty((4, rows, actions))

    def solve(self, pi: Array, delta: Array, u: Array) -> Array:
        """Writes u [S, A] and returns log x [S], NaN for the rows that it declines; pi and delta as in `solve`."""
        if pi.size < MIN_FAST_ENTRIES or pi.shape[1] < FEW:
            return np.full(len(pi), np.nan)
        with np.errstate(all="ignore"):  # a row that overflows ends in NaN
            return self.finish(pi, delta, u, self.near(pi, delta, u))

    def near(self, pi: Array, delta: Array, u: Array) -> Array:
        """Newton in single precision, to about 1e-6, from the same start as `solve`."""
        buffers = self.single[:, : len(pi)]
        a, z, _, _, p, d, v = buffers
        p[...], d[...] = pi, delta
        total = p.sum(1)

        # x: the smaller of log A and sqrt(E delta_+ (1 + E delta_+)), as in `first_x`
        delta_plus = np.vecdot(p, np.maximum(d, 0, out=z)) / total
        law = np.sqrt(delta_plus * (1 + delta_plus))
        np.exp(np.clip(d, -40, 80, out=a), out=a)
        log_a = np.log(np.vecdot(p, a) / total)
        log_x = np.log(np.where(log_a < 60, np.minimum(log_a, law), law))
        log_x[~((log_x >= SMALL) & (d.min(1) > -LARGE) & (d.max(1) < LARGE))] = np.nan

        # u = delta - W(e^z), z = delta + log x, as in `lambert_guess`: a = log(1 + e^z), then a (1 - log(1+a) / (2+a))
        a *= np.exp(log_x)[:, None]
        a += 1
        np.log(a, out=a)
        np.add(d, log_x[:, None], out=z)
        np.maximum(a, z, out=a)
        np.add(a, 1, out=z)
        np.log(z, out=v)
        z += 1
        v /= z
        v -= 1
        v *= a
        v += d
        for sweeps in range(8):
            minus_du, dlog_x, _ = newton_sweep(p, d, v, log_x, buffers)
            v -= minus_du
            log_x += np.clip(dlog_x, -3, 3)
            if sweeps > 0 and not (np.abs(dlog_x) >= 1e-3).any():
                break
        u[...] = v
        return log_x.astype(float)

    def finish(self, pi: Array, delta: Array, u: Array, log_x: Array) -> Array:
        """Newton in double precision with a second-order correction: the remaining error is of third order.

        A sweep treats w = x |y| e^u as linear in s = du + dlog x. The curvature that it leaves out,
        w s^2 / 2 in f and E[e^u du^2] / 2 in g, is the residual of one more Newton step:

            dlog x = E[e^u (du^2 - w s^2 / (1 + w))] / (2 E[e^u w / (1 + w)])
            du     = -w / (1 + w) (s^2 / 2 + dlog x)
        """
        buffers = self.double[:, : len(pi)]
        pi_exp_u, share, _, square = buffers  # share = w / (1 + w)
        for _ in range(3):
            minus_du, dlog_x, slope = newton_sweep(pi, delta, u, log_x, buffers)
            u -= minus_du
            np.subtract(dlog_x[:, None], minus_du, out=square)  # s = du + dlog x
            square *= square
            square *= share  # w s^2 / (1 + w)
            minus_du *= minus_du
            minus_du -= square  # du^2 - w s^2 / (1 + w)
            more = np.vecdot(pi_exp_u, minus_du) / (2 * slope)  # the second-order dlog x
            square *= 0.5
            share *= more[:, None]
            square += share  # minus the second-order du
            u -= square
            log_x += dlog_x + more
            worst = np.maximum(np.maximum(square.max(1), -square.min(1)), np.abs(more))
            if not (worst >= 1e-10).any():
                break
        log_x[~((worst < 1e-10) & (log_x >= SMALL))] = np.nan
        return log_x


def newton_sweep(pi: Reals, delta: Reals, u: Reals, log_x: Reals, buffers: Reals) -> tuple[Reals, Reals, Reals]:
    """One Newton step of `solve`, in place: -du [S, A], dlog x [S] and the slope E[e^u w / (1 + w)] [S].

    `buffers` [4.., S, A] then holds pi e^u and w / (1 + w) in its first two parts.
    """
    pi_exp_u, share, minus_du, scratch = buffers[:4]
    np.maximum(u, -40, out=scratch)  # below that, e^u - 1 is -1 to the last digit, and numpy is slow to compute it
    # not expm1, which costs two to ten times as much without AVX-512: with log x >= SMALL the roundings of e^u, some
    # 1e-16 of g, move log x by 1e-13 and u, by w / (1 + w) of that, by 1e-16
    np.exp(scratch, out=pi_exp_u)
    g = np.vecdot(pi, np.subtract(pi_exp_u, 1, out=scratch))  # 1 is subtracted from each: their sum would round
    np.multiply(pi_exp_u, np.exp(log_x)[:, None], out=share)  # w
    np.add(u, share, out=minus_du)
    minus_du -= delta  # f = u + w - delta
    np.add(share, 1, out=scratch)
    minus_du /= scratch  # f / (1 + w)
    share /= scratch
    pi_exp_u *= pi
    slope = np.vecdot(pi_exp_u, share)
    dlog_x = (g - np.vecdot(pi_exp_u, minus_du)) / slope
    np.multiply(share, dlog_x[:, None], out=scratch)
    minus_du += scratch
    return minus_du, dlog_x, slope


# A verifier gives only two rewards. The update is the same for all actions with the same reward, so a row enters
# through the two masses alone: a problem of two actions is solved and spread over the row, without an exponential per
# entry. What remains is reading the arrays, in blocks that stay in the cache between passes.


@dataclass(frozen=True)
class Pairs:
    """Rows of two rewards.

    Attributes:
        high, low: [S] the rewards; equal where a row has only one.
        best: [S, A] 1.0 on the high reward, 0.0 on the low one.
        mass: [S, 2] probability of the high and of the low reward.
    """

    high: Array
    low: Array
    best: Array
    mass: Array


def pairs(pi: Array, reward: Array) -> Pairs | None:
    """Two rewards of each row [S, A] and their masses; None if a row has a third. The first row decides most cases."""
    if reward.shape[1] <= 2 or not len(reward):
        return None
    first = reward[0]
    if not ((first == first.max()) | (first == first.min())).all():
        return None
    if first.min() == 0 and first.max() == 1:
        column = (len(reward), 1)
        found = masses(pi, reward, np.broadcast_to(1.0, column), np.broadcast_to(0.0, column), verdicts=True)
        if found is not None:
            return found
    return masses(pi, reward, reward.max(1, keepdims=True), reward.min(1, keepdims=True))


def masses(pi: Array, reward: Array, high: Array, low: Array, verdicts: bool = False) -> Pairs | None:
    """The pairs of rewards that are `high` or `low` [S, 1]; None if a row has a third. `verdicts`: they are 1 and 0."""
    best, mass = reward if verdicts else np.empty(reward.shape), np.empty((len(reward), 2))
    for rows in blocks(reward):
        old, values, is_best = pi[rows], reward[rows], best[rows]
        top, known = values == high[rows], values == low[rows]
        known |= top
        if not known.all():  # a third reward
            return None
        if not verdicts:
            is_best[...] = top
        right, wrong = mass[rows].T
        right[...] = np.vecdot(old, is_best)
        np.subtract(old.sum(1), right, out=wrong)
        rare = wrong < right  # a difference loses the digits of the smaller part
        if rare.any():
            wrong[rare] = np.vecdot(old, 1 - is_best)[rare]
    return Pairs(high[:, 0], low[:, 0], best, mass)


def spread(pi: Array, best: Array, log_ratio: Array, wide: Array, probs: Array) -> None:
    """Writes log-ratios and new probabilities, [S, A], from the log-ratios [S, 2] of the high and the low reward."""
    right, wrong = log_ratio[:, :1], log_ratio[:, 1:]
    more, less = np.exp(np.minimum(right, 709.0)), np.exp(np.minimum(wrong, 709.0))  # beyond: actions without mass
    gap = more - less  # no digit of a ratio is lost: less <= 1 <= more
    for rows in blocks(best):
        u, new = wide[rows], probs[rows]
        # new = pi (less + best gap), u = min(right, wrong + 1e300 best): in place, without a mask
        np.multiply(best[rows], gap[rows], out=new)
        new += less[rows]
        new *= pi[rows]
        np.multiply(best[rows], 1e300, out=u)
        u += wrong[rows]
        np.minimum(u, right[rows], out=u)  # wrong or right to the last digit: wrong <= right < 1e300


def blocks(rows: Array) -> list[slice]:
    """Slices with so few rows that several arrays of them stay in the cache."""
    step = max(1, BLOCK // rows.shape[1])
    return [slice(first, first + step) for first in range(0, len(rows), step)]


@contextmanager
def numpy_buffer(actions: int) -> Iterator[None]:
    """In the block, numpy's buffer has a size that suits rows of so many actions.

    Arithmetic of [S, A] with [S, 1] takes a third of the time if two rows exceed the buffer; short rows need more.
    """
    with np.errstate():  # leaving it restores the buffer
        np.setbufsize(64 if actions > 64 else 8192)
        yield
