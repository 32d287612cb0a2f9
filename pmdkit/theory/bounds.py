"""The paper's bounds on the target error, as stated and corrected, and on lambda."""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory import checks
from pmdkit.theory.binary_rewards import lambert_terms
from pmdkit.theory.checks import Array
from pmdkit.theory.pmd_part_update import log_mean_exp

# The error of leave-one-out targets, rewards {0, 1}.


def epsilon(p: ArrayLike, n: ArrayLike, delta: ArrayLike) -> Array:
    r"""Bound on the error of the leave-one-out mean of rewards, with probability 1 - delta for all n at once.

    $$ \varepsilon_n(p, \delta) = \sqrt{\frac{2p(1-p)\log(4n/\delta)}{n-1}} + \frac{2\log(4n/\delta)}{3(n-1)} $$

    Source: arXiv:2602.05933, Proposition tgt_err_clean. Shapes broadcast.
    Watch: very loose; at n = 16 and delta = 0.05 it is 0.42 at p = 0.01 and 0.81 at p = 0.5 (`epsilon_miss`).
    """
    p, n, delta = checks.pass_rates(p), checks.group_sizes(n), checks.confidences(delta)
    checks.together(p=p, n=n, delta=delta)
    logs = np.log(4 * n / delta)
    return np.sqrt(2 * p * (1 - p) * logs / (n - 1)) + 2 * logs / (3 * (n - 1))


def mean_bound(p: ArrayLike, n: ArrayLike, tau: ArrayLike, delta: ArrayLike) -> Array:
    r"""Bound (a), corrected: PMD-mean's mean squared target error, nats^2, with probability 1 - delta.

    $$ \overline{\Delta^2} \le \frac{2\varepsilon^2}{\tau^2}
       + 2\big[\min(1, p + \varepsilon)\,(w_+^2 - w_-^2) + w_-^2\big], \qquad w = \tfrac{\Delta}{\tau} - \log\rho $$

    Source: arXiv:2602.05933, proof of Proposition tgt_err_clean, up to the share of successes p_hat <= p + epsilon.
    Differs: the paper goes on to p (1 + epsilon), which is smaller than p + epsilon, and drops w_-, which is not
    small unless tau is far below p (`mean_bound_as_stated` of pmdkit-lab). Shapes broadcast.
    """
    p, tau, limit = checks.pass_rates(p), checks.temperatures(tau), epsilon(p, n, delta)
    w_plus, w_minus = lambert_terms(p, tau)
    return 2 * limit**2 / tau**2 + 2 * (np.minimum(1, p + limit) * (w_plus**2 - w_minus**2) + w_minus**2)


def part_bound(p: ArrayLike, n: ArrayLike, tau: ArrayLike, delta: ArrayLike) -> Array:
    r"""Bound (b): PMD-part's mean squared target error, nats^2, with probability 1 - delta.

    $$ \min\Big\{\frac{a\,\varepsilon}{1 + a\,(p - \varepsilon)_+},\; \frac1\tau\Big\}^2, \qquad a = e^{1/\tau} - 1 $$

    Source: arXiv:2602.05933, eq. tgt_err_part_clean. Shapes broadcast.
    """
    p, tau, limit = checks.pass_rates(p), checks.temperatures(tau), epsilon(p, n, delta)
    inverse_a = 1 / np.expm1(np.minimum(1 / tau, 700.0))
    below = np.maximum(p - limit, 0)
    return np.minimum(limit / (inverse_a + below), 1 / tau) ** 2


# Lambda.


def lambda_bounds(pi: ArrayLike, reward: ArrayLike, tau: ArrayLike) -> tuple[Array, Array]:
    r"""Lower and upper bound on PMD-mean's lambda, reward units squared.

    $$ \tau^2\,\frac{A(A-1)}{B} \le \lambda \le \tau^2\log A, \qquad
       A = E_\pi e^{\Delta/\tau},\; B = E_\pi e^{2\Delta/\tau} $$

    Source: arXiv:2602.05933, eq. lambda_bounds. Shapes: [..., A] to a pair of [...].
    Watch: within 20 % for tau above the reward gap and 0.3 % at ten times it; at a twentieth of it, p = 0.01, they are
    off by factors of 43 and 36.
    """
    pi, reward, tau = checks.problem(pi, reward, tau)
    target = checks.centred(pi, reward) / tau[..., None]
    log_a, log_b = log_mean_exp(pi, target), log_mean_exp(pi, 2 * target)
    return tau**2 * -np.expm1(-log_a) * np.exp(2 * log_a - log_b), tau**2 * log_a
