"""Bound (a) on PMD-mean's target error as the paper prints it, to compare with `theory.mean_bound`."""

from numpy.typing import ArrayLike

from pmdkit import theory
from pmdkit.theory import checks
from pmdkit.theory.checks import Array


def mean_bound_as_stated(p: ArrayLike, n: ArrayLike, tau: ArrayLike, delta: ArrayLike) -> Array:
    r"""Bound (a) as printed, with the constant 1 in place of its unnamed constant. It does not hold with any constant.

    $$ \frac{\varepsilon^2}{\tau^2} + \frac{p(1-p)^2}{\tau^2} $$

    Source: arXiv:2602.05933, eq. tgt_err_mean_clean.
    Watch: take p = 2 delta/n. One success in the group has probability above delta and lies within epsilon, yet costs
    about 1/(n tau^2) where the bound is of order 2 delta/(n tau^2). At delta = 0.001, n = 1e5: 250 times the bound.
    """
    p, tau = checks.pass_rates(p), checks.temperatures(tau)
    return (theory.epsilon(p, n, delta) ** 2 + p * (1 - p) ** 2) / tau**2
