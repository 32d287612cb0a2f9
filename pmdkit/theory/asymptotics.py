"""The paper's bounds and limits of lambda and of the ratios, to be compared with the exact values."""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.binary_rewards import BinarySolution
from pmdkit.theory.inputs import Array, centred, expect, known_method, pass_rates, problem, temperatures, weights
from pmdkit.theory.pmd_part_update import log_mean_exp


def lambda_bounds(pi: ArrayLike, reward: ArrayLike, tau: ArrayLike) -> tuple[Array, Array]:
    r"""Lower and upper bound on PMD-mean's lambda, reward units squared.

    $$ \tau^2\,\frac{A(A-1)}{B} \le \lambda \le \tau^2\log A, \qquad
       A = E_\pi e^{\Delta/\tau},\; B = E_\pi e^{2\Delta/\tau} $$

    Source: arXiv:2602.05933, eq. lambda_bounds. Shapes: [..., A] to a pair of [...].
    Watch: within 20 % for tau above the reward gap and 0.3 % at ten times it; at a twentieth of it, p = 0.01, they are
    off by factors of 43 and 36.
    """
    pi, reward, tau = problem(pi, reward, tau)
    target = centred(pi, reward) / tau[..., None]
    log_a, log_b = log_mean_exp(pi, target), log_mean_exp(pi, 2 * target)
    return tau**2 * -np.expm1(-log_a) * np.exp(2 * log_a - log_b), tau**2 * log_a


def lambda_large_tau(pi: ArrayLike, reward: ArrayLike, tau: ArrayLike, order: int = 1) -> Array:
    r"""PMD-mean's lambda as tau grows.

    $$ \lambda = \tfrac12 E_\pi\Delta^2 + \frac{E_\pi\Delta^3}{6\tau} + O(\tau^{-2}) $$

    Source: arXiv:2602.05933, eq. lambda_asymptotics, which has the first term for rewards {0, 1}: p(1-p)/2.
    Differs: any rewards; `order=2` adds the second term, not in the paper.
    """
    pi, reward, tau = problem(pi, reward, tau)
    advantage, weight = centred(pi, reward), pi / pi.sum(-1, keepdims=True)
    second, third = ((weight * advantage**power).sum(-1) for power in (2, 3))
    return second / 2 + (third / (6 * tau) if order == 2 else 0 * tau)


def lambda_small_tau(pi: ArrayLike, reward: ArrayLike, tau: ArrayLike, order: int = 1) -> Array:
    r"""PMD-mean's lambda as tau goes to 0.

    $$ \lambda = \tau\,g - \tau^2\,E_\pi\Big[1_{\Delta>0}\log\frac{\Delta}{g}\Big] + O(\tau^3), \quad
       g = E_\pi\Delta_+ $$

    Source: arXiv:2602.05933, eq. lambda_asymptotics, which has the first term for rewards {0, 1}: tau p (1-p).
    Differs: any rewards; `order=2` adds the second term, not in the paper (tau^2 p log p for rewards {0, 1}).
    Watch: within 1 % only for tau below 0.003 (p = 0.01) to 0.007 (p = 0.5).
    """
    pi, reward, tau = problem(pi, reward, tau)
    advantage, weight = centred(pi, reward), pi / pi.sum(-1, keepdims=True)
    g = (weight * np.maximum(advantage, 0.0)).sum(-1)
    if order == 1:
        return tau * g
    better = advantage > 0
    logs = np.log(np.where(better, advantage / np.where(g > 0, g, 1.0)[..., None], 1.0))
    return tau * g - tau**2 * (weight * logs).sum(-1)


def binary_small_tau(p: ArrayLike, tau: ArrayLike, method: str = "pmd-mean") -> BinarySolution:
    r"""The paper's small-tau expansions of everything in `binary`, without their o(1) terms.

    $$ \text{PMD-mean: } \rho_- = e^{-p/\tau},\; \rho_+ = \tfrac1p - \tfrac{1-p}{p}e^{-p/\tau},\;
       \eta = 1 - e^{-p/\tau},\; B = \tfrac{p}{\tau},\; \lambda = \tau p(1-p) $$
    $$ \text{PMD-part: } \rho_- = \tfrac1p e^{-1/\tau},\; \rho_+ = \tfrac1p - \tfrac{1-p}{p^2}e^{-1/\tau},\;
       B = \tfrac1\tau - \log\tfrac1p $$

    Source: arXiv:2602.05933, Propositions binary_ratios, eta_mean_asymp, BB_mean_asymp, BB_part_exact.
    Watch: PMD-mean's need tau far below p: eta is off by 1 % at tau = 0.0037 (p = 0.01) or 0.038 (p = 0.1), and by a
    factor of 2 at tau = 0.05, p = 0.01. PMD-part's rho_+ is negative, and the result NaN, above tau = 1 / log((1-p)/p).
    """
    p, tau = np.broadcast_arrays(pass_rates(p), temperatures(tau))
    expect((p > 0) & (p < 1), p, "p is {}; expected pass rates inside (0, 1): the expansions are singular at the ends")
    if known_method(method) == "pmd-mean":
        negative, lam, bound = -p / tau, tau * p * (1 - p), p / tau
    else:
        negative, lam, bound = -1 / tau - np.log(p), np.full(p.shape, np.nan)[()], 1 / tau + np.log(p)
    rho_plus = (1 - (1 - p) * np.exp(np.minimum(negative, 700.0))) / p
    positive = np.log(np.where(rho_plus > 0, rho_plus, np.nan))
    return BinarySolution(positive, negative, lam, -np.expm1(negative), bound, positive)


def log_ratio_range(gap: ArrayLike, tau: ArrayLike, lam: ArrayLike = 0.0) -> tuple[Array, Array]:
    r"""Bounds on the log ratios of the mixed problem from the range R of the rewards alone, nats.

    $$ -\frac{R}{\tau} \le u \le \min\Big(\frac R\tau,\; \log\Big(1 + \frac{R\tau}{\lambda}\Big)\Big) $$

    Source: arXiv:2602.05933, eq. huang_mixed_ratio and huang_kl_ratio, after arXiv:2407.13399, Proposition 4.2.
    Differs: the constants are 1, and lambda is explicit. The paper's 1 + R/tau is lambda = tau^2; PMD-mean's own lambda
    is smaller, so its ratios may pass 1 + R/tau (38 against 21 at p = 0.01, tau = 0.05).

    Args:
        gap: R, the largest reward minus the smallest, reward units, >= 0.
        tau: temperature, reward units.
        lam: 0 is the KL problem.
    """
    gap, tau, lam = weights("gap", gap), temperatures(tau), weights("lam", lam)
    chi2 = np.log1p(gap * tau / np.where(lam > 0, lam, 1.0))
    return -gap / tau, np.where(lam > 0, np.minimum(gap / tau, chi2), gap / tau)[()]
