"""From target error to pass rate: ERM lemma, total-variation step, one-step theorem, refined lemma."""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.error_bounds import epsilon
from pmdkit.theory.inputs import (
    Array,
    confidences,
    expect,
    group_sizes,
    numbers,
    pass_rates,
    policy,
    temperatures,
    together,
)


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
    n, delta = group_sizes(n), confidences(delta)
    width = numbers("bound", bound) + numbers("bound_plus", bound_plus)
    fast = 5 * width**2 * np.log(2 * class_size(policies) / delta) / (3 * n)
    return 4 * numbers("error", error) + 4 * numbers("slack", slack) + fast


def tv_bound(log_ratio: ArrayLike, target: ArrayLike, pi: ArrayLike) -> Array:
    r"""Bound on the total variation between two policies from their log ratios to pi.

    $$ TV \le \tfrac12\Big(\sqrt{1 + \chi^2(\pi'\|\pi)} + \sqrt{1 + \chi^2(\pi^\star\|\pi)}\Big)\sqrt{2 L_t}
       \le e^{B_+/2}\sqrt{2 L_t} $$

    Source: arXiv:2602.05933, proof of the one-step theorem; this is the middle term. Shapes: [..., A] to [...].
    Watch: nothing keeps it below 1, the largest value TV has.
    """
    probs, u, goal = policy(pi), numbers("log_ratio", log_ratio), numbers("target", target)
    together(log_ratio=u, target=goal, pi=probs)
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
    ideal = (1 - numbers("eta", eta)) * (1 - pass_rates(p))
    return ideal + np.exp(numbers("bound_plus", bound_plus) / 2) * np.sqrt(2 * numbers("distance", distance))


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
        bound: B of the policy class, nats; `binary(p, tau).B` is the least that contains the ideal update.
        n: responses, >= 2.
        delta: failure probability in (0, 1).
        policies: size of the policy class, >= 1.
        slack: epsilon_opt.

    Watch: the main text puts B = p/tau here (`refined_order`), which is too small unless tau is far below p / log(1/p).
    """
    p, tau, n, delta = pass_rates(p), temperatures(tau), group_sizes(n), confidences(delta)
    bound, limit = numbers("bound", bound), epsilon(p, n, delta / 2)
    fast = 14 / 3 * (bound + 1 / tau) ** 2 * np.log(2 * class_size(policies) / delta) / n
    shift = 4 * limit / tau * (bound + (2 * p + limit + 1 / n) / tau) + 2 * limit**2 / tau**2
    return 2 * numbers("slack", slack) + fast + shift


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
    p, tau, limit = pass_rates(p), temperatures(tau), epsilon(p, n, delta)
    logs = np.log(class_size(policies) / confidences(delta)) / group_sizes(n)
    if bound is None:
        return logs / tau**2 + (p * limit + limit**2) / tau**2
    width = numbers("bound", bound)
    return (width + 1 / tau) ** 2 * logs + limit / tau * (width + p / tau) + limit**2 / tau**2


def class_size(policies: float) -> float:
    """The number of policies the fit chooses from."""
    size = np.asarray(policies, float)
    expect(np.isfinite(size) & (size >= 1), size, "policies is {}; expected the size of a finite policy class, >= 1")
    return float(size)
