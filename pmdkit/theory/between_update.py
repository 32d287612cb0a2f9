"""The family from mean reward to log partition: the baseline V_k and its exact update."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.checks import Array, centred, leading_shape, lengths, numbers, problem, ratio, require
from pmdkit.theory.pmd_part_update import log_mean_exp


@dataclass(frozen=True)
class BetweenSolution:
    """One exact update with the baseline V_k.

    Attributes:
        log_ratio: [..., A] log pi_new/pi, nats.
        probs: [..., A] the new policy.
        value: [...] V_k, reward units.
        lam: [...] lambda_k of the mixed KL-chi2 regulariser, reward units squared: PMD-mean's at k = 0, 0 at k = 1.
    """

    log_ratio: Array
    probs: Array
    value: Array
    lam: Array


def baseline_value(pi: ArrayLike, reward: ArrayLike, tau: ArrayLike, k: ArrayLike) -> Array:
    r"""V_k: the log partition at the temperature tau / k, in reward units.

    $$ V_k = \frac{\tau}{k}\log E_\pi e^{k r/\tau}, \qquad V_0 = E_\pi r, \quad V_1 = \tau\log Z $$

    Source: not in the paper, which has both ends (eqs. L_mean and L_partition). V_k rises with k.
    Shapes: [..., A], tau and k scalar or [...], to [...].
    """
    pi, reward, tau = problem(pi, reward, tau)
    k = shares(k)
    leading_shape(pi, reward, tau=tau, k=k)
    delta = centred(pi, reward)
    mean = (pi * reward).sum(-1) / pi.sum(-1)
    inverse = np.where(k > 0, k, 1.0) / tau
    rise = log_mean_exp(pi, delta * inverse[..., None]) / inverse
    return mean + np.where(k > 0, np.maximum(rise, 0.0), 0.0)


def between(
    pi: ArrayLike, reward: ArrayLike, tau: ArrayLike, k: ArrayLike, length: ArrayLike | None = None
) -> BetweenSolution:
    r"""The exact update of the regression on r - V_k, for every k from PMD-mean (0) to PMD-part (1).

    $$ \rho(y) = \exp\Big(\frac{r - V_k}{\tau} - W\Big(\frac{\lambda_k}{\tau^2} e^{(r - V_k)/\tau}\Big)\Big), \quad
       E_\pi\rho = 1 $$

    $$ \max_{\pi'}\; E_{\pi'} r - \tau KL(\pi'\|\pi) - \frac{\lambda_k}{2\tau}\chi^2(\pi'\|\pi), \qquad
       \frac{\lambda_k}{\tau^2} = KL(\pi\|\pi') - \frac{V_k - E_\pi r}{\tau} $$

    Source: not in the paper; Theorem 1 of arXiv:2602.05933 and Proposition mixed_subproblem with V_k for the mean.
    The last equation is the first one averaged under pi. lambda_k falls from PMD-mean's to 0, so eta rises with k.

    Args:
        pi: [..., A] policy; must sum to 1 within 1e-8.
        reward: [..., A] reward units.
        tau: scalar or [...] temperature, reward units, > 0.
        k: scalar or [...], in [0, 1].
        length: [..., A] tokens, > 0: each response divided by its length, as norm "length" does.

    Good values: error below 1e-12 nats for tau in [1e-3, 1e3] and probabilities down to 1e-12.
    Watch: with lengths the regulariser is the length-weighted one, and at k < 1 lambda_k is one per token.
    """
    pi, reward, tau = problem(pi, reward, tau)
    k = shares(k)
    value = baseline_value(pi, reward, tau, k)
    shape = (*np.broadcast_shapes(value.shape, tau.shape), pi.shape[-1])
    size = lengths(length, shape)
    pi = np.broadcast_to(np.maximum(pi / pi.sum(-1, keepdims=True), 1e-300), shape)  # its logarithm is needed
    mean = (pi * reward).sum(-1)
    target = (centred(pi, reward) - (value - mean)[..., None]) / tau[..., None]
    share = pi if size is None else pi / size
    log_pi, target = np.log(pi), np.broadcast_to(target, shape)
    u = np.array(target)  # at k = 1 the targets themselves are the log-ratios of a policy
    over = log_sum(log_pi + target) > 0
    if over.any():
        u[over] = fit_over(log_pi[over], share[over], target[over])
    x = (share * (target - u)).sum(-1)  # the conditions summed over the actions
    return BetweenSolution(u, pi * ratio(u), value, np.maximum(x, 0.0) * tau**2)


def shares(k: ArrayLike) -> Array:
    """Scalar or [...] positions in the family, in [0, 1]."""
    values = numbers("k", k)
    require(
        (values >= 0) & (values <= 1), values, "k is {}; expected numbers from 0 (mean reward) to 1 (log partition)"
    )
    return values


def fit_over(log_pi: Array, weight: Array, s: Array) -> Array:
    r"""[R, A] log ratios that minimise sum_a w_a (u_a - s_a)^2 over all policies, where sum_a pi_a e^(s_a) > 1.

    $$ u_a = s_a - W(\mu\,\pi_a e^{s_a} / w_a), \qquad \sum_a \pi_a e^{u_a} = 1 $$

    One multiplier mu > 0, by Newton on its logarithm in a bracket. A cell of weight 0 loses all mass.
    """
    from scipy.special import wrightomega

    seen = weight > 0
    slope = np.where(seen, log_pi - np.log(np.where(seen, weight, 1.0)) + s, -np.inf)

    # the conditions summed over cells: mu = sum of w (s - u), at most the largest overshoot of a target
    low, high = np.full(len(s), -80.0), np.full(len(s), np.log(np.abs(s).max() - log_pi.min() + 1))
    log_mu = (low + high) / 2
    for _ in range(80):
        w = wrightomega(log_mu[:, None] + slope)
        mass = log_pi + np.where(seen, s - w, -np.inf)
        total = log_sum(mass)
        low, high = np.where(total > 0, log_mu, low), np.where(total > 0, high, log_mu)
        fall = (np.exp(mass - total[:, None]) * (w / (1 + w))).sum(1)  # minus the derivative of total by log mu
        with np.errstate(divide="ignore", over="ignore"):
            newton = log_mu + total / fall
        inside = (newton >= low) & (newton <= high)
        change = np.where(inside, newton, (low + high) / 2) - log_mu
        log_mu = log_mu + change
        if np.abs(change).max() < 1e-14 * 80:  # the last digit of a log mu of that size
            break
    return np.where(seen, s - wrightomega(log_mu[:, None] + slope), -np.inf)


def log_sum(values: Array) -> Array:
    """Log of the sum of exponentials over the last axis; NaN stays NaN."""
    top = values.max(-1, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        total: Array = top[..., 0] + np.log(np.exp(values - top).sum(-1))
    return total
