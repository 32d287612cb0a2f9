"""A sharper refined lemma: PMD-mean's fit without the floor of the target error and without its middle term."""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.error_bounds import epsilon
from pmdkit.theory.inputs import Array, confidences, group_sizes, numbers, pass_rates, temperatures
from pmdkit.theory.one_step import class_size


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

    Args:
        p: pass rate, rewards {0, 1}.
        tau: temperature.
        bound: B of the policy class, nats; `binary(p, tau).B`, at most 1/tau, is the least that holds the ideal update.
        n: responses, >= 2.
        delta: failure probability in (0, 1).
        policies: size of the policy class, >= 1.
        slack: epsilon_opt.

    Watch: it falls as 1/n where `refined_bound` falls as 1/sqrt(n); in small groups its constants make it the larger.
    """
    p, tau, n, delta = pass_rates(p), temperatures(tau), group_sizes(n), confidences(delta)
    width, limit = numbers("bound", bound), epsilon(p, n, delta / 3)
    fast = (28 / 3 * (width + 1 / tau) ** 2 + 32 / 3 * width**2) * np.log(3 * class_size(policies) / delta) / n
    return 4 * numbers("slack", slack) + 14 * limit**2 / tau**2 + fast
