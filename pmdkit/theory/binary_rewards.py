"""Rewards {0, 1}: ratios, contraction and log-ratio bounds of both updates, exactly; and tau as a function of eta."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.boltzmann import pmd_part
from pmdkit.theory.inputs import Array, expect, known_method, numbers, pass_rates, temperatures, together
from pmdkit.theory.lambert import pmd_mean


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
    Differs: exact at every tau, where the paper expands at small tau. `binary_small_tau` has the expansions.

    Args:
        p: pass rate in [0, 1]; broadcasts with tau. At 0 and 1 the values are the limits.
        tau: temperature in units of rewards {0, 1}; for rewards of +-1 give half of theirs (`rescale_tau`).
        method: "pmd-mean" or "pmd-part".

    Good values: relative error below 1e-10 in every field for p in [1e-12, 1 - 1e-12], tau in [1e-4, 1e4].
    Watch: eta rounds to 1 at small tau; 1 - eta is exp(log_ratio_neg).
    """
    p, tau = pass_rates(p), temperatures(tau)
    together(p=p, tau=tau)
    return from_masses(p, 1 - p, tau, known_method(method))


def from_masses(p: Array, q: Array, tau: Array, method: str) -> BinarySolution:
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


def tau_for_eta(p: ArrayLike, eta: ArrayLike) -> Array:
    r"""The temperature at which PMD-mean contracts by eta: the exact inverse of `binary(p, tau).eta`.

    $$ \frac1\tau = \frac{\eta}{p} v + (1-\eta)\Big[v + \log\Big(1 + \frac{(1-p)\eta}{p}\Big)\Big],
       \qquad v = \log\frac{1}{1-\eta} $$

    Source: not in the paper; Theorem 1 at the two rewards is linear in lambda and 1/tau once both ratios are known.
    Differs: the first term alone, tau = p / (eta v), is the law of `hard_prompt`.

    Args:
        p: pass rate in (0, 1]; broadcasts with eta.
        eta: contraction wanted, in (0, 1).

    Watch: a constant eta needs a tau almost proportional to p, the paper's question about adaptive temperatures.
    """
    p, eta = pass_rates(p), numbers("eta", eta)
    expect(p > 0, p, "p is {}; expected pass rates in (0, 1]: a prompt that is never solved does not contract")
    expect((eta > 0) & (eta < 1), eta, "eta is {}; expected contractions in (0, 1)")
    v = -np.log1p(-eta)
    return 1 / (eta * v / p + (1 - eta) * (v + np.log1p((1 - p) * eta / p)))


def rescale_tau(tau: ArrayLike, gap: float, new_gap: float) -> Array:
    r"""The temperature with the same update when the two rewards lie `new_gap` apart instead of `gap`.

    $$ \tau_{new} = \tau\,\frac{\text{new gap}}{\text{gap}} $$

    Source: arXiv:2602.05933 uses {0, 1} (gap 1) in its theory and +-1 (gap 2) in its experiments: both updates depend
    on rewards through Delta / tau only. lambda grows by the square of the factor.

    Good values: rescale_tau(0.01, 2, 1) = 0.005: the tau of a +-1 experiment in units of the theory.
    """
    if not (np.isfinite([gap, new_gap]).all() and min(gap, new_gap) > 0):
        raise ValueError(f"the gaps are {gap} and {new_gap}; expected finite numbers > 0, the distance of two rewards")
    return temperatures(tau) * (new_gap / gap)
