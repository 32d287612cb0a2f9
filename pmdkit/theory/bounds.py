"""The paper's bounds and limits, as stated and corrected: lambda, ratios, target error, fit, pass rate."""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory import inputs
from pmdkit.theory.binary_rewards import BinarySolution, binomial_probabilities, lambert_terms
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


def epsilon_miss(p: ArrayLike, n: int, delta: ArrayLike) -> Array:
    r"""The exact probability that some leave-one-out mean is farther than epsilon from p; at most delta.

    $$ P\big(\max_i |p_{-i} - p| > \varepsilon_n(p, \delta)\big) $$

    Source: arXiv:2602.05933, Lemma loo_mean_bernoulli, with a sum over the successes of the group for the bound.
    """
    size = int(inputs.group_sizes(n))
    p, limit = np.broadcast_arrays(inputs.pass_rates(p), epsilon(p, size, delta))
    counts = np.arange(size + 1.0)
    without_success, without_failure = (counts - 1) / (size - 1), counts / (size - 1)
    far = (counts > 0) & (np.abs(without_success - p[..., None]) > limit[..., None])
    far |= (counts < size) & (np.abs(without_failure - p[..., None]) > limit[..., None])
    return (binomial_probabilities(size, p) * far).sum(-1)


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


def tv_bound(log_ratio: ArrayLike, target: ArrayLike, pi: ArrayLike) -> Array:
    r"""Bound on the total variation between two policies from their log ratios to pi.

    $$ TV \le \tfrac12\Big(\sqrt{1 + \chi^2(\pi'\|\pi)} + \sqrt{1 + \chi^2(\pi^\star\|\pi)}\Big)\sqrt{2 L_t}
       \le e^{B_+/2}\sqrt{2 L_t} $$

    Source: arXiv:2602.05933, proof of the one-step theorem; this is the middle term. Shapes: [..., A] to [...].
    Watch: nothing keeps it below 1, the largest value TV has.
    """
    probs, u, goal = inputs.policy(pi), inputs.numbers("log_ratio", log_ratio), inputs.numbers("target", target)
    inputs.together(log_ratio=u, target=goal, pi=probs)
    weight = probs / probs.sum(-1, keepdims=True)
    second = [np.sqrt((weight * np.exp(2 * np.minimum(each, 350.0))).sum(-1)) for each in (u, goal)]
    return (second[0] + second[1]) / 2 * np.sqrt((weight * (u - goal) ** 2).sum(-1))


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


def refined_order(
    p: ArrayLike, tau: ArrayLike, n: ArrayLike, delta: ArrayLike, policies: float, bound: ArrayLike | None = None
) -> Array:
    r"""The refined lemma's right side without constants, nats^2: the main text's, or with `bound` the appendix's.

    $$ \text{appendix: } \frac{(B + 1/\tau)^2\log(|\Pi|/\delta)}{n} + \frac{\varepsilon}{\tau}\Big(B + \frac p\tau\Big)
       + \frac{\varepsilon^2}{\tau^2}; \qquad
       \text{main text: } \frac{\log(|\Pi|/\delta)}{\tau^2 n} + \frac{p\,\varepsilon + \varepsilon^2}{\tau^2} $$

    Source: arXiv:2602.05933, Lemma pmdmean_refined and Lemma erm_pmdmean_constrained_refined, epsilon_opt = 0.
    Watch: the main text follows from the appendix only where B = O(p/tau). With the exact B the middle term is
    (tau B + p) / p times the main text's: 19 at p = 0.01, tau = 0.05.
    """
    p, tau, limit = inputs.pass_rates(p), inputs.temperatures(tau), epsilon(p, n, delta)
    logs = np.log(class_size(policies) / inputs.confidences(delta)) / inputs.group_sizes(n)
    if bound is None:
        return logs / tau**2 + (p * limit + limit**2) / tau**2
    width = inputs.numbers("bound", bound)
    return (width + 1 / tau) ** 2 * logs + limit / tau * (width + p / tau) + limit**2 / tau**2


def refined_bound_sharper(
    p: ArrayLike,
    tau: ArrayLike,
    bound: ArrayLike,
    n: ArrayLike,
    delta: ArrayLike,
    policies: float,
    slack: ArrayLike = 0.0,
) -> Array:
    r"""PMD-mean's fit to its ideal update, nats^2, with probability 1 - delta.

    $$ L_t(\hat\pi) \le 4\epsilon_{opt} + \frac{14\,\varepsilon^2}{\tau^2}
       + \Big(\frac{28}{3}\big(B + \tfrac1\tau\big)^2 + \frac{32}{3}B^2\Big)\frac{\log(3|\Pi|/\delta)}{n},
       \qquad \varepsilon = \varepsilon_n(p, \delta/3) $$

    Source: not in the paper, whose Lemma erm_pmdmean_constrained_refined has a term epsilon (B + p/tau)/tau more, and
    whose Lemma pmdmean_refined has p epsilon/tau^2 in its place. Both bound the effect of the estimated baseline on
    the loss of one policy. Only its effect on the difference of two losses matters, and there the squares cancel: with
    d_i = (p - p_-i)/tau and f = s_pi - s_star it is the mean of f d, at most (epsilon/tau) sqrt(mean f^2). Bernstein's
    inequality puts mean f^2 below 3 L_t + (16/3) B^2 log/n, and sqrt(L_t) epsilon/tau <= L_t/4 + epsilon^2/tau^2.

    Args: as in `refined_bound`; the exact B is at most 1/tau.

    Watch: it falls as 1/n where `refined_bound` falls as 1/sqrt(n); in small groups its constants make it the larger.
    """
    p, tau, n, delta = inputs.pass_rates(p), inputs.temperatures(tau), inputs.group_sizes(n), inputs.confidences(delta)
    width, limit = inputs.numbers("bound", bound), epsilon(p, n, delta / 3)
    fast = (28 / 3 * (width + 1 / tau) ** 2 + 32 / 3 * width**2) * np.log(3 * class_size(policies) / delta) / n
    return 4 * inputs.numbers("slack", slack) + 14 * limit**2 / tau**2 + fast


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


def lambda_large_tau(pi: ArrayLike, reward: ArrayLike, tau: ArrayLike, order: int = 1) -> Array:
    r"""PMD-mean's lambda as tau grows.

    $$ \lambda = \tfrac12 E_\pi\Delta^2 + \frac{E_\pi\Delta^3}{6\tau} + O(\tau^{-2}) $$

    Source: arXiv:2602.05933, eq. lambda_asymptotics, which has the first term for rewards {0, 1}: p(1-p)/2.
    Differs: any rewards; `order=2` adds the second term, not in the paper.
    """
    pi, reward, tau = inputs.problem(pi, reward, tau)
    advantage, weight = inputs.centred(pi, reward), pi / pi.sum(-1, keepdims=True)
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
    pi, reward, tau = inputs.problem(pi, reward, tau)
    advantage, weight = inputs.centred(pi, reward), pi / pi.sum(-1, keepdims=True)
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


def log_ratio_range(gap: ArrayLike, tau: ArrayLike, lam: ArrayLike = 0.0) -> tuple[Array, Array]:
    r"""Bounds on the log ratios of the mixed problem from the range R of the rewards alone, nats.

    $$ -\frac{R}{\tau} \le u \le \min\Big(\frac R\tau,\; \log\Big(1 + \frac{R\tau}{\lambda}\Big)\Big) $$

    Source: arXiv:2602.05933, eq. huang_mixed_ratio and huang_kl_ratio, after arXiv:2407.13399, Proposition 4.2.
    Differs: the constants are 1, and lambda is explicit. The paper's 1 + R/tau is lambda = tau^2; PMD-mean's own lambda
    is smaller, so its ratios may pass 1 + R/tau (38 against 21 at p = 0.01, tau = 0.05).

    Args:
        gap: R, the largest reward minus the smallest, reward units, >= 0.
        tau: temperature, reward units.
        lam: lambda, reward units squared; 0 is the KL problem.
    """
    gap, tau, lam = inputs.weights("gap", gap), inputs.temperatures(tau), inputs.weights("lam", lam)
    chi2 = np.log1p(gap * tau / np.where(lam > 0, lam, 1.0))
    return -gap / tau, np.where(lam > 0, np.minimum(gap / tau, chi2), gap / tau)[()]
