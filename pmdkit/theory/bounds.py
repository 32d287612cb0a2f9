"""The paper's bounds and limits, as stated and corrected: lambda, ratios, target error, fit, pass rate."""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory import inputs
from pmdkit.theory.binary_rewards import BinarySolution, lambert_terms
from pmdkit.theory.inputs import Array
from pmdkit.theory.pmd_part_update import log_mean_exp

# The error of leave-one-out targets, rewards {0, 1}.


def epsilon(p: ArrayLike, n: ArrayLike, delta: ArrayLike) -> Array:
    r"""How far the leave-one-out mean may stray from the pass rate, with probability 1 - delta for all n at once.

    $$ \varepsilon_n(p, \delta) = \sqrt{\frac{2p(1-p)\log(4n/\delta)}{n-1}} + \frac{2\log(4n/\delta)}{3(n-1)} $$

    Source: arXiv:2602.05933, Proposition tgt_err_clean. Shapes broadcast.
    Watch: very loose; at n = 16 and delta = 0.05 it is 0.42 at p = 0.01 and 0.81 at p = 0.5 (`epsilon_miss`).
    """
    p, n, delta = inputs.pass_rates(p), inputs.group_sizes(n), inputs.confidences(delta)
    inputs.together(p=p, n=n, delta=delta)
    logs = np.log(4 * n / delta)
    return np.sqrt(2 * p * (1 - p) * logs / (n - 1)) + 2 * logs / (3 * (n - 1))


def mean_bound(p: ArrayLike, n: ArrayLike, tau: ArrayLike, delta: ArrayLike) -> Array:
    r"""Bound (a), corrected: PMD-mean's mean squared target error, nats^2, with probability 1 - delta.

    $$ \overline{\Delta^2} \le \frac{2\varepsilon^2}{\tau^2}
       + 2\big[\min(1, p + \varepsilon)\,(w_+^2 - w_-^2) + w_-^2\big], \qquad w = \tfrac{\Delta}{\tau} - \log\rho $$

    Source: arXiv:2602.05933, proof of Proposition tgt_err_clean, up to the share of successes p_hat <= p + epsilon.
    Differs: the paper goes on to p (1 + epsilon), which is smaller than p + epsilon (`mean_bound_as_stated`), and drops
    w_-, which is not small unless tau is far below p. Shapes broadcast.
    """
    p, tau, limit = inputs.pass_rates(p), inputs.temperatures(tau), epsilon(p, n, delta)
    w_plus, w_minus = lambert_terms(p, tau)
    return 2 * limit**2 / tau**2 + 2 * (np.minimum(1, p + limit) * (w_plus**2 - w_minus**2) + w_minus**2)


def mean_bound_as_stated(p: ArrayLike, n: ArrayLike, tau: ArrayLike, delta: ArrayLike) -> Array:
    r"""Bound (a) as printed, with the constant 1 in place of its unnamed constant. It does not hold with any constant.

    $$ \frac{\varepsilon^2}{\tau^2} + \frac{p(1-p)^2}{\tau^2} $$

    Source: arXiv:2602.05933, eq. tgt_err_mean_clean.
    Watch: take p = 2 delta/n. One success in the group has probability above delta and lies within epsilon, yet costs
    about 1/(n tau^2) where the bound is of order 2 delta/(n tau^2). At delta = 0.001, n = 1e5: 250 times the bound.
    """
    p, tau = inputs.pass_rates(p), inputs.temperatures(tau)
    return (epsilon(p, n, delta) ** 2 + p * (1 - p) ** 2) / tau**2


def part_bound(p: ArrayLike, n: ArrayLike, tau: ArrayLike, delta: ArrayLike) -> Array:
    r"""Bound (b): PMD-part's mean squared target error, nats^2, with probability 1 - delta.

    $$ \min\Big\{\frac{a\,\varepsilon}{1 + a\,(p - \varepsilon)_+},\; \frac1\tau\Big\}^2, \qquad a = e^{1/\tau} - 1 $$

    Source: arXiv:2602.05933, eq. tgt_err_part_clean. Shapes broadcast.
    """
    p, tau, limit = inputs.pass_rates(p), inputs.temperatures(tau), epsilon(p, n, delta)
    inverse_a = 1 / np.expm1(np.minimum(1 / tau, 700.0))
    below = np.maximum(p - limit, 0)
    return np.minimum(limit / (inverse_a + below), 1 / tau) ** 2


# From target error to pass rate: ERM lemma, total-variation step, one-step theorem, refined lemma.


def erm_bound(
    error: ArrayLike,
    bound: ArrayLike,
    bound_plus: ArrayLike,
    n: ArrayLike,
    delta: ArrayLike,
    policies: float,
    slack: ArrayLike = 0.0,
) -> Array:
    r"""Distance of the fitted policy to the ideal one, nats^2, with probability 1 - delta.

    $$ L_t(\hat\pi) \le 4\,\overline{\Delta^2} + 4\,\epsilon_{opt}
       + \frac{5 M^2\log(2|\Pi|/\delta)}{3n}, \quad M = B + B_+ $$

    Source: arXiv:2602.05933, Lemma erm_loo, with the constants of its proof.

    Args:
        error: bar Delta^2 of the group, nats^2.
        bound: B, bound on |log ratio| in the policy class, nats.
        bound_plus: B_+, bound on the log ratio.
        n: responses, >= 2.
        delta: failure probability in (0, 1).
        policies: size of the policy class, >= 1.
        slack: epsilon_opt, how far the fit is from the minimum of its loss.
    """
    n, delta = inputs.group_sizes(n), inputs.confidences(delta)
    width = inputs.numbers("bound", bound) + inputs.numbers("bound_plus", bound_plus)
    fast = 5 * width**2 * np.log(2 * class_size(policies) / delta) / (3 * n)
    return 4 * inputs.numbers("error", error) + 4 * inputs.numbers("slack", slack) + fast


def one_step_bound(p: ArrayLike, eta: ArrayLike, bound_plus: ArrayLike, distance: ArrayLike) -> Array:
    r"""Bound on 1 - J after the step, from the contraction of the ideal update and the distance of the fit to it.

    $$ 1 - J(\pi_{t+1}) \le (1 - \eta)(1 - p) + e^{B_+/2}\sqrt{2 L_t} $$

    Source: arXiv:2602.05933, Theorem one-step policy improvement, with the constants of its proof.

    Args:
        p: pass rate now, in [0, 1].
        eta: contraction of the ideal update, in [0, 1].
        bound_plus: B_+, nats.
        distance: L_t of the fit, nats^2, for example `erm_bound`.

    Watch: with `erm_bound` as the distance and a group of 16 it is above 10, and says nothing, at every pass rate of
    the paper's figures (tau = 0.05).
    """
    ideal = (1 - inputs.numbers("eta", eta)) * (1 - inputs.pass_rates(p))
    growth, gap = np.exp(inputs.numbers("bound_plus", bound_plus) / 2), inputs.numbers("distance", distance)
    return ideal + growth * np.sqrt(2 * gap)


def refined_bound(
    p: ArrayLike,
    tau: ArrayLike,
    bound: ArrayLike,
    n: ArrayLike,
    delta: ArrayLike,
    policies: float,
    slack: ArrayLike = 0.0,
) -> Array:
    r"""PMD-mean's fit to its ideal update, nats^2, without the floor of the target error, with probability 1 - delta.

    $$ L_t(\hat\pi) \le 2\epsilon_{opt} + \frac{14}{3}\frac{(B + 1/\tau)^2\log(2|\Pi|/\delta)}{n}
       + \frac{4\varepsilon}{\tau}\Big(B + \frac{2p + \varepsilon + 1/n}{\tau}\Big) + \frac{2\varepsilon^2}{\tau^2},
       \qquad \varepsilon = \varepsilon_n(p, \delta/2) $$

    Source: arXiv:2602.05933, Lemma erm_pmdmean_constrained_refined, with the constants of its proof.

    Args:
        p: pass rate, rewards {0, 1}.
        tau: temperature.
        bound: B of the policy class, nats; `binary(p, tau).B` is the smallest that contains the ideal update.
        n: responses, >= 2.
        delta: failure probability in (0, 1).
        policies: size of the policy class, >= 1.
        slack: epsilon_opt.

    Watch: the main text puts B = p/tau here (`refined_order`), which is too small unless tau is far below p / log(1/p).
    """
    p, tau, n, delta = inputs.pass_rates(p), inputs.temperatures(tau), inputs.group_sizes(n), inputs.confidences(delta)
    bound, limit = inputs.numbers("bound", bound), epsilon(p, n, delta / 2)
    fast = 14 / 3 * (bound + 1 / tau) ** 2 * np.log(2 * class_size(policies) / delta) / n
    shift = 4 * limit / tau * (bound + (2 * p + limit + 1 / n) / tau) + 2 * limit**2 / tau**2
    return 2 * inputs.numbers("slack", slack) + fast + shift


def class_size(policies: float) -> float:
    """The number of policies the fit chooses from."""
    size = np.asarray(policies, float)
    sentence = "policies is {}; expected the size of a finite policy class, >= 1"
    inputs.expect(np.isfinite(size) & (size >= 1), size, sentence)
    return float(size)


# The paper's bounds and limits of lambda and of the ratios, to be compared with the exact values.


def lambda_bounds(pi: ArrayLike, reward: ArrayLike, tau: ArrayLike) -> tuple[Array, Array]:
    r"""Lower and upper bound on PMD-mean's lambda, reward units squared.

    $$ \tau^2\,\frac{A(A-1)}{B} \le \lambda \le \tau^2\log A, \qquad
       A = E_\pi e^{\Delta/\tau},\; B = E_\pi e^{2\Delta/\tau} $$

    Source: arXiv:2602.05933, eq. lambda_bounds. Shapes: [..., A] to a pair of [...].
    Watch: within 20 % for tau above the reward gap and 0.3 % at ten times it; at a twentieth of it, p = 0.01, they are
    off by factors of 43 and 36.
    """
    pi, reward, tau = inputs.problem(pi, reward, tau)
    target = inputs.centred(pi, reward) / tau[..., None]
    log_a, log_b = log_mean_exp(pi, target), log_mean_exp(pi, 2 * target)
    return tau**2 * -np.expm1(-log_a) * np.exp(2 * log_a - log_b), tau**2 * log_a


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
    p, tau = np.broadcast_arrays(inputs.pass_rates(p), inputs.temperatures(tau))
    sentence = "p is {}; expected pass rates inside (0, 1): the expansions are singular at the ends"
    inputs.expect((p > 0) & (p < 1), p, sentence)
    if inputs.known_method(method) == "pmd-mean":
        negative, lam, bound = -p / tau, tau * p * (1 - p), p / tau
    else:
        negative, lam, bound = -1 / tau - np.log(p), np.full(p.shape, np.nan)[()], 1 / tau + np.log(p)
    rho_plus = (1 - (1 - p) * np.exp(np.minimum(negative, 700.0))) / p
    positive = np.log(np.where(rho_plus > 0, rho_plus, np.nan))
    return BinarySolution(positive, negative, lam, -np.expm1(negative), bound, positive)
