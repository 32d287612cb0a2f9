"""PMD-mean and PMD-part at small tau: the paper's expansions, and a law of hard prompts that it misses."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory import BinarySolution, checks
from pmdkit.theory.checks import Array


def binary_small_tau(p: ArrayLike, tau: ArrayLike, method: str = "pmd-mean") -> BinarySolution:
    r"""The paper's small-tau expansions of everything in `theory.binary`, without their o(1) terms.

    $$ \text{PMD-mean: } \rho_- = e^{-p/\tau},\; \rho_+ = \tfrac1p - \tfrac{1-p}{p}e^{-p/\tau},\;
       \eta = 1 - e^{-p/\tau},\; B = \tfrac{p}{\tau},\; \lambda = \tau p(1-p) $$

    $$ \text{PMD-part: } \rho_- = \tfrac1p e^{-1/\tau},\; \rho_+ = \tfrac1p - \tfrac{1-p}{p^2}e^{-1/\tau},\;
       B = \tfrac1\tau - \log\tfrac1p $$

    Source: arXiv:2602.05933, Propositions binary_ratios, eta_mean_asymp, BB_mean_asymp, BB_part_exact.
    Watch: PMD-mean's need tau far below p: eta is off by 1 % at tau = 0.0037 (p = 0.01) or 0.038 (p = 0.1), and by a
    factor of 2 at tau = 0.05, p = 0.01. PMD-part's rho_+ is negative, and the result NaN, above tau = 1 / log((1-p)/p).
    """
    p, tau = np.broadcast_arrays(checks.pass_rates(p), checks.temperatures(tau))
    sentence = "p is {}; expected pass rates inside (0, 1): the expansions are singular at the ends"
    checks.require((p > 0) & (p < 1), p, sentence)
    if checks.known_method(method) == "pmd-mean":
        negative, lam, bound = -p / tau, tau * p * (1 - p), p / tau
    else:
        negative, lam, bound = -1 / tau - np.log(p), np.full(p.shape, np.nan)[()], 1 / tau + np.log(p)
    rho_plus = (1 - (1 - p) * np.exp(np.minimum(negative, 700.0))) / p
    positive = np.log(np.where(rho_plus > 0, rho_plus, np.nan))
    return BinarySolution(positive, negative, lam, -np.expm1(negative), bound, positive)


@dataclass(frozen=True)
class HardPrompt:
    """PMD-mean in the limit of a small pass rate and a small temperature with p/tau held fixed.

    Attributes:
        y: the solution of y (1 - e^-y) = p/tau; -log rho_-, nats.
        eta: 1 - e^-y.
        lam: tau^2 y, reward units squared.
    """

    y: Array
    eta: Array
    lam: Array


def hard_prompt(p: ArrayLike, tau: ArrayLike) -> HardPrompt:
    r"""The law of PMD-mean on hard prompts, rewards {0, 1}: one equation in p/tau.

    $$ y\,(1 - e^{-y}) = \frac{p}{\tau}, \qquad \rho_- = e^{-y}, \quad \eta = 1 - e^{-y}, \quad \lambda = \tau^2 y $$

    Source: not in the paper. Write x = lambda/tau^2 and w = x rho, Theorem 1's Lambert-W. The normalisation is
    x = p w_+ + (1-p) w_-. As p, tau -> 0, w_+ -> 1/tau and w_- = x rho_-, so x (1 - rho_-) = p/tau; at reward 0,
    -log rho_- = p/tau + w_- = x. Hence y = x. At large p/tau it is the paper's e^(-p/tau); at small p/tau
    eta = sqrt(p/tau), far above the paper's p/tau.
    Good values: eta within 1 % for p <= 1e-4 and p/tau >= 0.1.
    Watch: it needs e^(-1/tau) far below p; at p = 0.01, tau = 0.5 it is off by a factor of 2.7.
    """
    p, tau = checks.pass_rates(p), checks.temperatures(tau)
    checks.together(p=p, tau=tau)
    # Newton on y (1 - e^-y) - s = 0; the slope is 1 - e^-y + y e^-y.
    s = p / tau
    y = np.sqrt(s) + s  # above the root, where Newton falls towards it
    for _ in range(30):
        slope = -np.expm1(-y) + y * np.exp(-y)
        y = y + (y * np.expm1(-y) + s) / np.where(slope > 0, slope, 1)
    return HardPrompt(y, -np.expm1(-y), tau**2 * y)
