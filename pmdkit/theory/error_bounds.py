"""The paper's bounds on the error of leave-one-out targets: as stated, and PMD-mean's corrected. Rewards {0, 1}."""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.binary_rewards import binary
from pmdkit.theory.binomial import probabilities
from pmdkit.theory.inputs import Array, confidences, group_sizes, pass_rates, temperatures, together


def epsilon(p: ArrayLike, n: ArrayLike, delta: ArrayLike) -> Array:
    r"""How far the leave-one-out mean may stray from the pass rate, with probability 1 - delta for all n at once.

    $$ \varepsilon_n(p, \delta) = \sqrt{\frac{2p(1-p)\log(4n/\delta)}{n-1}} + \frac{2\log(4n/\delta)}{3(n-1)} $$

    Source: arXiv:2602.05933, Proposition tgt_err_clean. Shapes broadcast.
    Watch: very loose; at n = 16 and delta = 0.05 it is 0.42 at p = 0.01 and 0.81 at p = 0.5 (`epsilon_miss`).
    """
    p, n, delta = pass_rates(p), group_sizes(n), confidences(delta)
    together(p=p, n=n, delta=delta)
    logs = np.log(4 * n / delta)
    return np.sqrt(2 * p * (1 - p) * logs / (n - 1)) + 2 * logs / (3 * (n - 1))


def epsilon_miss(p: ArrayLike, n: int, delta: ArrayLike) -> Array:
    r"""The exact probability that some leave-one-out mean is farther than epsilon from p; at most delta.

    $$ P\big(\max_i |p_{-i} - p| > \varepsilon_n(p, \delta)\big) $$

    Source: arXiv:2602.05933, Lemma loo_mean_bernoulli, with a sum over the successes of the group for the bound.
    """
    size = int(group_sizes(n))
    p, limit = np.broadcast_arrays(pass_rates(p), epsilon(p, size, delta))
    counts = np.arange(size + 1.0)
    without_success, without_failure = (counts - 1) / (size - 1), counts / (size - 1)
    far = (counts > 0) & (np.abs(without_success - p[..., None]) > limit[..., None])
    far |= (counts < size) & (np.abs(without_failure - p[..., None]) > limit[..., None])
    return (probabilities(size, p) * far).sum(-1)


def mean_bound(p: ArrayLike, n: ArrayLike, tau: ArrayLike, delta: ArrayLike) -> Array:
    r"""Bound (a), corrected: PMD-mean's mean squared target error, nats^2, with probability 1 - delta.

    $$ \overline{\Delta^2} \le \frac{2\varepsilon^2}{\tau^2}
       + 2\big[\min(1, p + \varepsilon)\,(w_+^2 - w_-^2) + w_-^2\big], \qquad w = \tfrac{\Delta}{\tau} - \log\rho $$

    Source: arXiv:2602.05933, proof of Proposition tgt_err_clean, up to the share of successes p_hat <= p + epsilon.
    Differs: the paper goes on to p (1 + epsilon), which is smaller than p + epsilon (`mean_bound_as_stated`), and drops
    w_-, which is not small unless tau is far below p. Shapes broadcast.
    """
    p, tau, limit = pass_rates(p), temperatures(tau), epsilon(p, n, delta)
    best = binary(p, tau)
    x = best.lam / tau**2
    positive = (x * np.exp(np.minimum(best.log_ratio_pos, 709.0))) ** 2
    negative = (x * np.exp(best.log_ratio_neg)) ** 2
    return 2 * limit**2 / tau**2 + 2 * (np.minimum(1, p + limit) * (positive - negative) + negative)


def mean_bound_as_stated(p: ArrayLike, n: ArrayLike, tau: ArrayLike, delta: ArrayLike) -> Array:
    r"""Bound (a) as printed, with the constant 1 in place of its unnamed constant. It does not hold with any constant.

    $$ \frac{\varepsilon^2}{\tau^2} + \frac{p(1-p)^2}{\tau^2} $$

    Source: arXiv:2602.05933, eq. tgt_err_mean_clean.
    Watch: take p = 2 delta/n. One success in the group has probability above delta and lies within epsilon, yet costs
    about 1/(n tau^2) where the bound is of order 2 delta/(n tau^2). At delta = 0.001, n = 1e5: 250 times the bound.
    """
    p, tau = pass_rates(p), temperatures(tau)
    return (epsilon(p, n, delta) ** 2 + p * (1 - p) ** 2) / tau**2


def part_bound(p: ArrayLike, n: ArrayLike, tau: ArrayLike, delta: ArrayLike) -> Array:
    r"""Bound (b): PMD-part's mean squared target error, nats^2, with probability 1 - delta.

    $$ \min\Big\{\frac{a\,\varepsilon}{1 + a\,(p - \varepsilon)_+},\; \frac1\tau\Big\}^2, \qquad a = e^{1/\tau} - 1 $$

    Source: arXiv:2602.05933, eq. tgt_err_part_clean. Shapes broadcast.
    """
    p, tau, limit = pass_rates(p), temperatures(tau), epsilon(p, n, delta)
    inverse_a = 1 / np.expm1(np.minimum(1 / tau, 700.0))
    below = np.maximum(p - limit, 0)
    return np.minimum(limit / (inverse_a + below), 1 / tau) ** 2
