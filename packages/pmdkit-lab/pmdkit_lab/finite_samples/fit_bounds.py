"""From target error to pass rate: the paper's bounds on the fit to n draws and on the step it makes."""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory import checks
from pmdkit.theory.checks import Array


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
    n, delta = checks.group_sizes(n), checks.confidences(delta)
    width = checks.numbers("bound", bound) + checks.numbers("bound_plus", bound_plus)
    fast = 5 * width**2 * np.log(2 * class_size(policies) / delta) / (3 * n)
    return 4 * checks.numbers("error", error) + 4 * checks.numbers("slack", slack) + fast


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
    ideal = (1 - checks.numbers("eta", eta)) * (1 - checks.pass_rates(p))
    growth, gap = np.exp(checks.numbers("bound_plus", bound_plus) / 2), checks.numbers("distance", distance)
    return ideal + growth * np.sqrt(2 * gap)


def class_size(policies: float) -> float:
    """The number of policies the fit chooses from."""
    size = np.asarray(policies, float)
    sentence = "policies is {}; expected the size of a finite policy class, >= 1"
    checks.require(np.isfinite(size) & (size >= 1), size, sentence)
    return float(size)
