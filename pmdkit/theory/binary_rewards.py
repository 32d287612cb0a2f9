"""Rewards {0, 1}: the exact update, tau as a function of eta, trajectories; exact means over groups of draws."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pmdkit.theory.checks import Array, known_method, numbers, pass_rates, require, temperatures, together
from pmdkit.theory.pmd_mean_update import pmd_mean
from pmdkit.theory.pmd_part_update import pmd_part

TABLE = 4_000_000  # binomial terms held in memory at a time: 32 MB


@dataclass(frozen=True)
class BinarySolution:
    """One exact update at pass rate p. Every field has the broadcast shape of p and tau.

    Attributes:
        log_ratio_pos: log pi_new/pi of a response with reward 1, nats.
        log_ratio_neg: the same with reward 0.
        lam: lambda of PMD-mean, reward units squared; NaN for PMD-part, which has no such multiplier.
        eta: contraction: 1 - p_new = (1 - eta)(1 - p).
        B: the smallest bound on |log ratio|, nats.
        B_plus: the smallest bound on the log ratio, nats; it is log_ratio_pos.
    """

    log_ratio_pos: Array
    log_ratio_neg: Array
    lam: Array
    eta: Array
    B: Array
    B_plus: Array


def binary(p: ArrayLike, tau: ArrayLike, method: str = "pmd-mean") -> BinarySolution:
    r"""The exact update of a prompt with pass rate p and rewards {0, 1}.

    $$ \eta = 1 - \rho_-, \quad B_+ = \log\rho_+, \quad B = \max(\log\rho_+, -\log\rho_-), \quad
       p\rho_+ + (1-p)\rho_- = 1 $$

    Source: arXiv:2602.05933, Theorem 1 and Proposition binary_ratios; eta of Propositions eta_mean_asymp and
    eta_part_exact; B and B_+ of Propositions BB_mean_asymp and BB_part_exact.
    Differs: exact at every tau, where the paper expands at small tau (`small_tau.py` of pmdkit-lab).

    Args:
        p: pass rate in [0, 1]; broadcasts with tau. At 0 and 1 the values are the limits.
        tau: temperature in units of rewards {0, 1}; for rewards of +-1 give half of theirs.
        method: "pmd-mean" or "pmd-part".

    Good values: relative error below 1e-10 in every field for p in [1e-12, 1 - 1e-12], tau in [1e-4, 1e4], and at
    tau = 0.01 and 1 for p down to 1e-305.
    Watch: a smaller p counts as 0: log_ratio_neg, lam and eta are 0 then and not tiny; log_ratio_pos stays right.
    At the other end eta rounds to 1 at small tau; 1 - eta is exp(log_ratio_neg).
    """
    p, tau = pass_rates(p), temperatures(tau)
    together(p=p, tau=tau)
    return binary_of_masses(p, 1 - p, tau, known_method(method))


def tau_for_eta(p: ArrayLike, eta: ArrayLike) -> Array:
    r"""The temperature at which PMD-mean contracts by eta: the exact inverse of `binary(p, tau).eta`.

    $$ \frac1\tau = \frac{\eta}{p} v + (1-\eta)\Big[v + \log\Big(1 + \frac{(1-p)\eta}{p}\Big)\Big],
       \qquad v = \log\frac{1}{1-\eta} $$

    Source: not in the paper; Theorem 1 at the two rewards is linear in lambda and 1/tau once both ratios are known.
    Differs: the first term alone, tau = p / (eta v), is y (1 - e^-y) = p/tau, a law of hard prompts.

    Args:
        p: pass rate in (0, 1]; broadcasts with eta.
        eta: the contraction wanted, in (0, 1).

    Watch: a constant eta needs a tau almost proportional to p, the paper's question about adaptive temperatures.
    Relative error below 1e-10 down to p = 1e-305. A temperature below 1e-308 is 0, with numpy's warning of an overflow.
    """
    p, eta = pass_rates(p), numbers("eta", eta)
    require(p > 0, p, "p is {}; expected pass rates in (0, 1]: a prompt that is never solved does not contract")
    require((eta > 0) & (eta < 1), eta, "eta is {}; expected contractions in (0, 1)")
    v = -np.log1p(-eta)
    return 1 / (eta * v / p + (1 - eta) * (v + np.log1p((1 - p) * eta / p)))


def trajectory(p0: ArrayLike, tau: ArrayLike, steps: int, method: str = "pmd-mean") -> Array:
    r"""Pass rates p_0 .. p_steps when every step is the exact update at rewards {0, 1}.

    $$ 1 - p_{t+1} = (1 - \eta_t)(1 - p_t) $$

    Source: arXiv:2602.05933, eq. ideal_improvement with equality, which both updates reach on binary rewards.
    For PMD-part the odds grow by e^(1/tau) a step.

    Args:
        p0: pass rate in [0, 1]; broadcasts with tau.
        tau: temperature in units of rewards {0, 1}.
        steps: number of updates, >= 0.
        method: "pmd-mean" or "pmd-part".

    Returns:
        [..., steps + 1]; time is the last axis.

    Watch: 1 - p is carried along with p, so late steps keep the odds of PMD-part right although p rounds to 1.
    """
    p, tau = pass_rates(p0), temperatures(tau)
    if steps != int(steps) or steps < 0:
        raise ValueError(f"steps is {steps}; expected a whole number >= 0")
    shape = together(p0=p, tau=tau)
    p = np.broadcast_to(p, shape)
    path, q = [p], 1 - p
    # p_new = p rho_+ and 1 - p_new = (1 - p) rho_-, divided by their sum so that rounding does not pile up
    for _ in range(int(steps)):
        update = binary_of_masses(p, q, tau, known_method(method))
        p, q = p * np.exp(np.minimum(update.log_ratio_pos, 709.0)), q * np.exp(update.log_ratio_neg)
        p, q = p / (p + q), q / (p + q)
        path.append(p)
    return np.stack(path, -1)


def binary_of_masses(p: Array, q: Array, tau: Array, method: str) -> BinarySolution:
    """`binary` for a pass rate given together with its complement, so that a tiny 1 - p keeps its digits."""
    pair = np.stack([p, q], -1)
    if method == "pmd-mean":
        mean = pmd_mean(pair, [1.0, 0.0], tau)
        log_ratio, lam = mean.log_ratio, mean.lam
    else:
        log_ratio = pmd_part(pair, [1.0, 0.0], tau).log_ratio
        lam = np.full(log_ratio.shape[:-1], np.nan)[()]
    positive, negative = log_ratio[..., 0][()], log_ratio[..., 1][()]
    return BinarySolution(
        positive, negative, lam, -np.expm1(negative), np.maximum(np.abs(positive), np.abs(negative)), positive
    )


def lambert_terms(p: Array, tau: Array) -> tuple[Array, Array]:
    """w_+ and w_-, PMD-mean's W = x rho at rewards 1 and 0: how far Delta/tau overshoots the ideal log ratio, nats."""
    best = binary(p, tau)
    x = best.lam / tau**2
    return x * np.exp(np.minimum(best.log_ratio_pos, 709.0)), x * np.exp(best.log_ratio_neg)


def binomial_probabilities(m: int, p: Array) -> Array:
    """[..., m + 1] probabilities of 0 .. m successes at pass rate p [...]; normalised to remove rounding errors."""
    from scipy.special import gammaln, xlog1py, xlogy

    k = np.arange(m + 1.0)
    ways = gammaln(m + 1) - gammaln(k + 1) - gammaln(m - k + 1)
    log_pmf = ways + xlogy(k, p[..., None]) + xlog1py(m - k, -p[..., None])
    pmf = np.exp(log_pmf)
    return pmf / pmf.sum(-1, keepdims=True)


def mean_over_successes(value: Callable[[Array, Array, Array, int], NDArray], p: Array, m: Array, tau: Array) -> Array:
    """[...] exact mean of value(p, tau, S, m) over the successes S of m draws; p, m and tau [...] of one shape.

    Contexts of one m share a table of counts: `value` gets p and tau as [C, 1] and S as [m + 1].
    """
    mean = np.empty(p.shape)
    for size in np.unique(m):
        where = np.flatnonzero(m.ravel() == size)
        step, counts = max(1, TABLE // int(size + 1)), np.arange(size + 1.0)
        for part in (where[first : first + step] for first in range(0, len(where), step)):
            rates, temperature = p.ravel()[part], tau.ravel()[part]
            values = value(rates[:, None], temperature[:, None], counts, int(size))
            mean.ravel()[part] = (binomial_probabilities(int(size), rates) * values).sum(-1)
    return mean[()]
