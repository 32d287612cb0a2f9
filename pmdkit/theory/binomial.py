"""Probabilities of a binomial count, all of them at once: the one distribution that groups of binary rewards need."""

import numpy as np

from pmdkit.theory.inputs import Array


def probabilities(m: int, p: Array) -> Array:
    """[..., m + 1] probabilities of 0 .. m successes at pass rate p [...]; normalised, which takes out rounding."""
    from scipy.special import gammaln, xlog1py, xlogy

    k = np.arange(m + 1.0)
    ways = gammaln(m + 1) - gammaln(k + 1) - gammaln(m - k + 1)
    log_pmf = ways + xlogy(k, p[..., None]) + xlog1py(m - k, -p[..., None])
    pmf = np.exp(log_pmf)
    return pmf / pmf.sum(-1, keepdims=True)
