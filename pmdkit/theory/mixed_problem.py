"""KL, chi-square and total variation between two policies, and the mixed KL-chi2 subproblem.

The subproblem is solved for any weight lambda; the solver shares no step with PMD-mean's.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.checks import Array, centred, excess, leading_shape, policy, problem, ratio, together, weights
from pmdkit.theory.pmd_part_update import log_mean_exp


def kl(new: ArrayLike, old: ArrayLike) -> Array:
    r"""Kullback-Leibler divergence, nats.

    $$ KL(\pi\|\pi_{old}) = E_{\pi} \log\frac{\pi}{\pi_{old}} $$

    Source: arXiv:2602.05933, eq. pmd_kl_subproblem. Shapes: [..., A] twice to [...]; infinite where `new` has mass that
    `old` lacks.
    """
    new, old = pair(new, old)
    both = (new > 0) & (old > 0)
    log_ratio = np.log(np.where(both, new, 1.0)) - np.log(np.where(both, old, 1.0))
    close = np.abs(log_ratio) < 0.02
    # each term is new * log_ratio - new + old >= 0: summing nonnegative terms keeps the digits of a small divergence
    terms = np.where(close, new * excess(np.where(close, -log_ratio, 0.0)), new * log_ratio - new + old)
    return np.where(((new > 0) & (old == 0)).any(-1), np.inf, np.where(both, terms, old).sum(-1))[()]


def chi2(new: ArrayLike, old: ArrayLike) -> Array:
    r"""Chi-square divergence.

    $$ \chi^2(\pi\|\pi_{old}) = E_{\pi_{old}}\Big[\Big(\frac{\pi}{\pi_{old}} - 1\Big)^2\Big] $$

    Source: arXiv:2602.05933, section mixed_div. It bounds KL from above. Shapes: [..., A] twice to [...]; infinite
    where `new` has mass that `old` lacks.
    """
    new, old = pair(new, old)
    safe = np.where(old > 0, old, 1.0)
    total = np.where(old > 0, (new - old) / safe * (new - old), 0.0).sum(-1)
    return np.where(((new > 0) & (old == 0)).any(-1), np.inf, total)[()]


def pair(new: ArrayLike, old: ArrayLike) -> tuple[Array, Array]:
    """Two policies over the same actions."""
    new, old = policy(new), policy(old)
    if new.shape[-1] != old.shape[-1]:
        raise ValueError(f"the policies have {new.shape[-1]} and {old.shape[-1]} actions; expected the same number")
    together(new=new, old=old)
    return new, old


@dataclass(frozen=True)
class MixedSolution:
    """The maximiser of expected reward minus the mixed regulariser.

    Attributes:
        log_ratio: [..., A] log pi_new/pi, nats.
        probs: [..., A] the new policy.
    """

    log_ratio: Array
    probs: Array


def mixed(pi: ArrayLike, reward: ArrayLike, tau: ArrayLike, lam: ArrayLike) -> MixedSolution:
    r"""The policy that maximises reward under a KL and a chi-square penalty.

    $$ \max_{\pi'}\; E_{\pi'} r - \tau\,KL(\pi'\|\pi) - \frac{\lambda}{2\tau}\chi^2(\pi'\|\pi), \qquad
       u + k\,(e^u - 1) = \frac{\Delta}{\tau} + d, \quad E_\pi e^u = 1, \quad k = \lambda/\tau^2 $$

    Source: arXiv:2602.05933, eq. mixed_subproblem and its KKT conditions in the proof of Proposition mixed_subproblem.
    Differs: lambda is free here. At the lambda of `pmd_mean` the solution is PMD-mean's; at 0 it is PMD-part's.

    Args:
        pi: [..., A] policy; must sum to 1 within 1e-8.
        reward: [..., A] reward units.
        tau: scalar or [...] temperature, reward units, > 0.
        lam: scalar or [...], reward units squared, >= 0.

    Watch: the normalisation is searched in d = -KL(pi || pi') by bisection and Newton, 36 sweeps of Wright's omega in
    every context: a reference, a hundred times slower than `pmd_mean`.
    """
    pi, reward, tau = problem(pi, reward, tau)
    lam = weights("lam", lam)
    shape = (*leading_shape(pi, reward, tau=tau, lam=lam), pi.shape[-1])
    pi, target = np.broadcast_to(pi, shape), np.broadcast_to(centred(pi, reward) / tau[..., None], shape)
    k = np.broadcast_to(lam / tau**2, shape[:-1])[..., None]

    # E_pi e^u grows with d, and u = response(target + d, k): the search is for the d at which it is 1.
    low = -log_mean_exp(pi, target)  # the d of the KL problem; a chi2 term can only raise it, towards 0
    high = low * 1e-305
    for _ in range(32):  # halves the range of log(-d), 700 nats wide, down to 2e-7
        d = -np.sqrt(-low) * np.sqrt(-high)
        log_sum, _ = log_mass(pi, response(target + d[..., None], k), k)
        low, high = np.where(log_sum < 0, d, low), np.where(log_sum < 0, high, d)
    for _ in range(4):
        log_sum, slope = log_mass(pi, response(target + d[..., None], k), k)
        d = d - log_sum / slope
    u = response(target + d[..., None], k)
    return MixedSolution(u, pi * ratio(u))


def log_mass(pi: Array, u: Array, k: Array) -> tuple[Array, Array]:
    """[...] log E_pi e^u, linear in d where k = 0, and its derivative with respect to d."""
    top = u.max(-1, keepdims=True, where=pi > 0, initial=-np.inf)
    share = pi * np.exp(np.minimum(u - top, 0.0))
    far = top[..., 0] + np.log(share.sum(-1) / pi.sum(-1))
    near = np.abs(far) < 0.1
    gap = np.where(near, (pi * np.expm1(np.minimum(u, 700.0))).sum(-1) / pi.sum(-1), 0.0)
    slope = (share / (1 + k * np.exp(np.minimum(u, 600.0)))).sum(-1) / share.sum(-1)
    return np.where(near, np.log1p(gap), far), slope


def response(target: Array, k: Array) -> Array:
    """The u with u + k (e^u - 1) = target: Wright's omega to start, two Newton steps against cancellation."""
    from scipy.special import wrightomega

    # With w = k e^u the equation reads w + log w = target + k + log k, so that w is Wright's omega of the right side.
    shift = target + k
    u = shift - wrightomega(shift + np.log(np.maximum(k, 1e-300)))
    for _ in range(2):
        grown = np.exp(np.minimum(u, 700.0))
        u = u - (u + k * np.expm1(np.minimum(u, 700.0)) - target) / (1 + k * grown)
    return u
