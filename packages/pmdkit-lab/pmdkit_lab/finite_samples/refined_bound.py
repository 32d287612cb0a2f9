"""The refined lemma, PMD-mean's fit without the floor of the target error, and a sharper form that falls as 1/n."""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit import theory
from pmdkit.theory import checks
from pmdkit.theory.checks import Array
from pmdkit_lab.finite_samples.fit_bounds import class_size


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
        bound: B of the policy class, nats; `theory.binary(p, tau).B` is the smallest that contains the ideal update.
        n: responses, >= 2.
        delta: failure probability in (0, 1).
        policies: size of the policy class, >= 1.
        slack: epsilon_opt.

    Watch: the main text puts B = p/tau here (`refined_order`), which is too small unless tau is far below p / log(1/p).
    """
    p, tau, n, delta = checks.pass_rates(p), checks.temperatures(tau), checks.group_sizes(n), checks.confidences(delta)
    bound, limit = checks.numbers("bound", bound), theory.epsilon(p, n, delta / 2)
    fast = 14 / 3 * (bound + 1 / tau) ** 2 * np.log(2 * class_size(policies) / delta) / n
    shift = 4 * limit / tau * (bound + (2 * p + limit + 1 / n) / tau) + 2 * limit**2 / tau**2
    return 2 * checks.numbers("slack", slack) + fast + shift


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

    Watch: it falls as 1/n where `refined_bound` falls as 1/sqrt(n); in small groups its constants make it the
    larger.
    """
    tau, n, delta, width = checks.temperatures(tau), checks.group_sizes(n), np.asarray(delta), np.asarray(bound)
    limit = theory.epsilon(p, n, delta / 3)
    fast = (28 / 3 * (width + 1 / tau) ** 2 + 32 / 3 * width**2) * np.log(3 * policies / delta) / n
    return 4 * np.asarray(slack) + 14 * limit**2 / tau**2 + fast
