"""How wrong leave-one-out targets are, rewards {0, 1}, exactly over the binomial. Simulation is elsewhere."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.binary_rewards import binary
from pmdkit.theory.binomial import probabilities
from pmdkit.theory.error_bounds import mean_bound, part_bound
from pmdkit.theory.inputs import Array, group_sizes, known_method, pass_rates, temperatures, together
from pmdkit.theory.leave_one_out import log_partition_estimate

TABLE = 4_000_000  # binomial terms held at a time: 32 MB


@dataclass(frozen=True)
class TargetError:
    """Expected squared error of the targets, nats^2, each of the broadcast shape of p, n and tau.

    Attributes:
        positive: mean over groups, given that the own reward is 1.
        negative: the same, given 0.
        mean: p * positive + (1 - p) * negative, the expectation of the paper's bar Delta^2.
        bound: with probability 1 - delta the group's own bar Delta^2 is below; None without delta.
    """

    positive: Array
    negative: Array
    mean: Array
    bound: Array | None


def target_error(
    p: ArrayLike, n: ArrayLike, tau: ArrayLike, method: str = "pmd-mean", delta: ArrayLike | None = None
) -> TargetError:
    r"""Mean squared distance of leave-one-out targets to the ideal log ratio, exactly.

    $$ E\,\overline{\Delta^2}, \quad \Delta_i = \tilde s_i - s^\star(y_i); \qquad
       \text{PMD-mean: } \frac{p(1-p)}{(n-1)\tau^2} + p\,w_+^2 + (1-p)\,w_-^2, \quad
       w = \tfrac{\Delta}{\tau} - \log\rho $$

    PMD-part: the sum over S ~ Bin(n-1, p) of (log Z - log(1 + (e^(1/tau) - 1) S/(n-1)))^2, whatever the own reward.

    Source: arXiv:2602.05933, Lemma erm_loo and Proposition tgt_err_clean; the closed form is not in the paper.

    Args:
        p: pass rate in [0, 1].
        n: responses per prompt, >= 2.
        tau: temperature in units of rewards {0, 1}. p, n and tau broadcast.
        method: "pmd-mean" or "pmd-part".
        delta: failure probability of `.bound` (`mean_bound`, the corrected one, or `part_bound`).

    Watch: `mean` is an expectation and `bound` a quantile: a bound below some draws of a group is possible.
    """
    p, n, tau = pass_rates(p), group_sizes(n), temperatures(tau)
    together(p=p, n=n, tau=tau)
    p, n, tau = np.broadcast_arrays(p, n, tau)
    if known_method(method) == "pmd-mean":
        systematic_pos, systematic_neg = mean_shortfall(p, tau)
        noise = p * (1 - p) / ((n - 1) * tau**2)
        positive, negative = noise + systematic_pos**2, noise + systematic_neg**2
    else:
        positive = negative = part_error(p, n, tau)
    bound = None
    if delta is not None:
        bound = mean_bound(p, n, tau, delta) if method == "pmd-mean" else part_bound(p, n, tau, delta)
    return TargetError(positive, negative, p * positive + (1 - p) * negative, bound)


def mean_shortfall(p: Array, tau: Array) -> tuple[Array, Array]:
    """w_+ and w_-, the Lambert-W terms: how far Delta/tau overshoots the ideal log ratio, nats."""
    best = binary(p, tau)
    x = best.lam / tau**2
    return x * np.exp(np.minimum(best.log_ratio_pos, 709.0)), x * np.exp(best.log_ratio_neg)


def part_gap(p: Array, tau: Array, successes: Array, peers: Array | int) -> Array:
    """log Z minus its estimate, nats; by log1p where the two are close, so that small errors keep their digits."""
    fails, share = np.exp(-1 / tau), successes / peers
    scale = np.where(share > 0, fails + (1 - fails) * share, 1.0)
    relative = (1 - fails) * (p - share) / scale
    close = (share > 0) & (np.abs(relative) < 0.5)
    apart = log_partition_estimate(p, 1, tau) - log_partition_estimate(successes, peers, tau)
    return np.where(close, np.log1p(np.where(close, relative, 0.0)), apart)


def part_error(p: Array, n: Array, tau: Array) -> Array:
    """[...] exact mean squared error of PMD-part's targets; contexts of one group size share a table of counts."""
    error = np.empty(p.shape)
    for size in np.unique(n):
        where = np.flatnonzero(n.ravel() == size)
        step, m = max(1, TABLE // int(size)), int(size) - 1
        counts = np.arange(m + 1.0)
        for part in (where[first : first + step] for first in range(0, len(where), step)):
            rates, temperature = p.ravel()[part], tau.ravel()[part]
            gaps = part_gap(rates[:, None], temperature[:, None], counts, m)
            error.ravel()[part] = (probabilities(m, rates) * gaps**2).sum(-1)
    return error[()]
