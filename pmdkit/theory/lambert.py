"""Theorem 1: the exact population solution of PMD-mean, also for rows with lengths.

`solve` is the reference. Its fast twins are lambert_fast.py and, for two rewards, two_rewards.py.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.inputs import SMALLEST, Array, centred, excess, lengths, problem, together
from pmdkit.theory.lambert_fast import FastSolver
from pmdkit.theory.two_rewards import pairs, spread

BLOCK = 32_768  # entries solved at a time: few calls, and arrays that still fit the cache
FLOOR = float(np.log(SMALLEST))


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
        MeanSolution; leading dimensions broadcast. Where pi sees one reward only, nothing moves and lambda is 0.

    Good values: relative error below 1e-10 for tau in [1e-4, 1e4], pass rates in [1e-12, 1 - 1e-12].
    Watch: real rewards do not become greedy as tau goes to 0: the ratio tends to Delta_+ / E[Delta_+].
    """
    pi, reward, tau = problem(pi, reward, tau, log_pi)
    shape = (*together(pi=pi[..., 0], reward=reward[..., 0], tau=tau), pi.shape[-1])
    rows = [np.broadcast_to(array, shape).reshape(-1, shape[-1]) for array in (pi, reward)]
    if (size := lengths(length, shape)) is not None:
        rows.append(size.reshape(-1, shape[-1]))
    with buffer(shape[-1]):
        log_ratio, probs, log_x = solution(*rows, tau=np.broadcast_to(tau, shape[:-1]).reshape(-1, 1))
    lam = np.exp(log_x.reshape(shape[:-1]) + 2 * np.log(tau))
    return MeanSolution(log_ratio.reshape(shape), probs.reshape(shape), lam)


def solution(pi: Array, reward: Array, *length: Array, tau: Array) -> tuple[Array, Array, Array]:
    """Log-ratios and probabilities [S, A], log x [S]: by pairs where two rewards are all, else in blocks of rows."""
    if not length and (two := pairs(pi, reward)) is not None:
        with buffer(2):
            masses, ends = two.mass / two.mass.sum(1, keepdims=True), np.stack([two.high, two.low], -1)
            log_ratio, _, log_x = solution(masses, ends, tau=tau)
        return *spread(pi, two.best, log_ratio), log_x
    log_ratio, probs, log_x = np.empty(pi.shape), np.empty(pi.shape), np.empty(len(pi))
    step = max(1, BLOCK // pi.shape[1])
    fast = FastSolver(min(step, len(pi)), pi.shape[1])
    for first in range(0, len(pi), step):
        part = slice(first, first + step)
        old, u, found, tokens = pi[part], log_ratio[part], log_x[part], [size[part] for size in length]
        target = centred(old, reward[part])
        target /= tau[part]
        found[...] = np.nan if length else fast.solve(old, target, u)
        if (rest := np.isnan(found)).any():
            u[rest], found[rest] = solve(old[rest], target[rest], *(size[rest] for size in tokens))
        probs[part] = ratio(u)
        probs[part] *= old
    return log_ratio, probs, log_x


@contextmanager
def buffer(actions: int) -> Iterator[None]:
    """[S, A] with [S, 1] takes numpy a third of the time where two rows do not fit its buffer; short rows need one."""
    with np.errstate():  # its end restores the buffer
        np.setbufsize(64 if actions > 64 else 8192)
        yield


def ratio(log_ratio: Array) -> Array:
    """e^u, 0 below SMALLEST; only an action of probability 0 can pass e^709, and its product with pi stays 0."""
    if log_ratio.max(initial=0.0) > 709:
        log_ratio = np.minimum(log_ratio, 709.0)
    if log_ratio.min(initial=0.0) >= FLOOR:
        return np.exp(log_ratio)
    values = np.exp(np.maximum(log_ratio, FLOOR))  # np.exp is ten times slower where its result is not a normal number
    values *= log_ratio > FLOOR
    return values


def solve(pi: Array, target: Array, length: Array | None = None) -> tuple[Array, Array]:
    """Newton on u and log x together: u + x |y| e^u = target in every entry, sum pi (e^u - 1) = 0 in every row.

    Written without exp(target), so that nothing overflows; one exponential per entry and sweep.

    Args:
        pi: [S, A] policies, up to a factor per row.
        target: [S, A] Delta / tau, with mean 0 under pi.
        length: [S, A] tokens, or None for 1.

    Returns:
        u [S, A] and log x = log(lambda / tau^2) [S]; where all targets under pi are 0, u = target and log x = -inf.
    """
    total = pi.sum(1)

    def mean(values: Array) -> Array:
        return np.vecdot(pi, values) / total

    size = 1.0 if length is None else length
    longest = 1.0 if length is None else length.max(1)
    gain = mean(np.maximum(target, 0.0))
    still = gain == 0
    goal = np.where(still[:, None], 0.0, target) if still.any() else target
    log_x = np.log(np.where(still, 1.0, np.maximum(first_x(goal, gain, mean) / longest, 1e-320)))
    u = goal - lambert_guess(goal + log_x[:, None] + np.log(size))
    last = False
    for sweep in range(100):
        rise = np.expm1(u)  # e^u - 1 keeps the digits of a small u, and the sum below does not cancel
        growth = rise + 1 if length is None else np.exp(u)  # lengths magnify the last digit of a small ratio
        w = size * np.exp(log_x)[:, None] * growth
        slope = 1 / (1 + w)
        residual = u + w - goal
        growth *= slope
        growth *= pi
        fall = np.vecdot(growth, w)
        step = (np.vecdot(pi, rise) - np.vecdot(growth, residual)) / np.where(fall > 0, fall, 1)
        short = np.clip(step, -3, 3)  # the sum falls steadily in log x: short steps cannot miss
        if log_x.min() < -7:  # where x is small the sum is a straight line in x itself: one step down is enough
            down = (step < 0) & (log_x < -7)
            short = np.where(down, np.log1p(np.maximum(step, 1e-10 - 1)), short)
        step = np.where(still, 0, short)
        left = np.abs(step)
        residual += w * step[:, None]
        residual *= slope
        u -= residual
        if sweep > 20 and log_x.min() < -7:  # a tiny x drowns in the rounding of the sum; u does not feel it
            felt = left * (w * slope).max(1)
            left = np.where((log_x < -7) & (felt <= 1e-12 * np.abs(u).max(1)), 0, left)
        log_x += step
        if max(left.max(), residual.max(), -residual.min()) < 1e-7:  # Newton: what is left is the square,
            if last or log_x.min() >= -7:
                break
            last = True  # over x: one sweep more where x is small
    else:
        raise ArithmeticError("PMD-mean: Newton did not converge in 100 sweeps; please report pi, reward and tau")
    if log_x.min() < -7:  # x E|y|e^u = E(e^u - 1 - u), a sum of positive terms, keeps the digits of a small x
        log_x = np.log(np.maximum(mean(excess(u)) / mean(size * np.exp(u)), 1e-320))
    if still.any():
        u, log_x = np.where(still[:, None], target, u), np.where(still, -np.inf, log_x)
    return u, log_x


def first_x(target: Array, gain: Array, mean: Callable[..., Array]) -> Array:
    """[S] an estimate of x: the smaller of log E e^target (the paper's bound) and the law x^2 = gain (1 + gain)."""
    return np.minimum(np.log1p(mean(np.expm1(np.minimum(target, 600.0)))), np.sqrt(gain * (1 + gain)))


def lambert_guess(z: Array) -> Array:
    """W(e^z) to one per cent, from a = log(1 + e^z): a (1 - log(1 + a) / (2 + a)) (Winitzki's approximation)."""
    a = np.maximum(z, np.log(2 + np.expm1(np.minimum(z, 700.0))))
    return a * (1 - np.log(1 + a) / (2 + a))
