"""Leave-one-out targets, and their error on rewards {0, 1}: exact over the binomial, and simulated."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.binary_rewards import lambert_terms, mean_over_successes
from pmdkit.theory.bounds import mean_bound, part_bound
from pmdkit.theory.checks import Array, group_sizes, known_method, numbers, pass_rates, rewards, temperatures, together


def leave_one_out_targets(reward: ArrayLike, tau: ArrayLike, method: str = "pmd-mean") -> Array:
    r"""Estimated log-ratio targets of the n responses of a group, nats.

    $$ \tilde s_i = \frac{r_i}{\tau} - \frac{1}{\tau(n-1)}\sum_{j\ne i} r_j \;\text{(PMD-mean)}, \qquad
       \tilde s_i = \frac{r_i}{\tau} - \log\frac{1}{n-1}\sum_{j\ne i} e^{r_j/\tau} \;\text{(PMD-part)} $$

    Source: arXiv:2602.05933, eq. loo-s-mean and loo-s-part.
    Differs: nothing. The log mean is gathered from both ends of the group, never by subtraction from the full sum.

    Args:
        reward: [..., n] rewards of the group, n >= 2.
        tau: scalar or [...] temperature, reward units.
        method: "pmd-mean" or "pmd-part".

    Watch: PMD-mean's targets add up to 0 in every group; PMD-part's do not: the baseline is almost the best peer.
    """
    reward, tau = rewards(reward), temperatures(tau)
    n = group_sizes(reward.shape[-1])
    together(reward=reward[..., 0], tau=tau)
    scaled = reward / tau[..., None]
    if known_method(method) == "pmd-mean":
        return (scaled - scaled.mean(-1, keepdims=True)) * (n / (n - 1))
    nothing = np.full((*scaled.shape[:-1], 1), -np.inf)
    before = np.concatenate([nothing, np.logaddexp.accumulate(scaled, -1)[..., :-1]], -1)
    after = np.concatenate([np.logaddexp.accumulate(scaled[..., ::-1], -1)[..., -2::-1], nothing], -1)
    return scaled - (np.logaddexp(before, after) - np.log(n - 1))


def log_partition_estimate(successes: ArrayLike, peers: ArrayLike, tau: ArrayLike) -> Array:
    r"""The log mean of e^(r/tau) over `peers` responses with `successes` rewards of 1 and the rest 0, nats.

    $$ \log\Big(1 + (e^{1/\tau} - 1)\frac{S}{m}\Big) $$

    Source: arXiv:2602.05933, eq. loo-s-part for rewards {0, 1}. Shapes broadcast.
    """
    share, tau = numbers("successes", successes) / numbers("peers", peers), temperatures(tau)
    fails = np.exp(-1 / tau)
    low = np.log1p(share * np.expm1(np.minimum(1 / tau, 700.0)))
    floor = np.where(share > 0, share, 1.0)
    return np.where((1 / tau <= 600) | (share == 0), low, 1 / tau + np.log(floor + (1 - floor) * fails))


@dataclass(frozen=True)
class TargetError:
    """Expected squared error of the targets, nats^2, each of the broadcast shape of p, n and tau.

    Attributes:
        positive: mean over groups, given that a response's own reward is 1.
        negative: the same, given 0.
        mean: p * positive + (1 - p) * negative, the expectation of the paper's bar Delta^2.
        bound: with probability 1 - delta, the group's own bar Delta^2 is below this; None without delta.
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

    PMD-part: the sum over S ~ Bin(n-1, p) of (log Z - log(1 + (e^(1/tau) - 1) S/(n-1)))^2, whatever its own reward.

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
        systematic_pos, systematic_neg = lambert_terms(p, tau)
        noise = p * (1 - p) / ((n - 1) * tau**2)
        positive, negative = noise + systematic_pos**2, noise + systematic_neg**2
    else:
        positive = negative = mean_over_successes(lambda *seen: part_gap(*seen) ** 2, p, n - 1, tau)
    bound = None
    if delta is not None:
        bound = mean_bound(p, n, tau, delta) if method == "pmd-mean" else part_bound(p, n, tau, delta)
    return TargetError(positive, negative, p * positive + (1 - p) * negative, bound)


@dataclass(frozen=True)
class SimulatedError:
    """Squared target errors of simulated groups, nats^2; leading dimensions are those of p, n and tau.

    Attributes:
        per_seed: [..., seeds] bar Delta^2, the mean over the n responses of one group.
        per_seed_positive: [..., seeds] the mean over the group's responses with reward 1; NaN where it has none.
        per_seed_negative: [..., seeds] the same for reward 0.
        positives: [..., seeds] how many responses of the group have reward 1.
        mean: [...] mean of per_seed.
        positive: [...] pooled: the mean over the responses with reward 1 of all groups together; NaN without any.
        negative: [...] pooled over all responses with reward 0.
    """

    per_seed: Array
    per_seed_positive: Array
    per_seed_negative: Array
    positives: Array
    mean: Array
    positive: Array
    negative: Array


def simulate_target_error(
    p: ArrayLike,
    n: ArrayLike,
    tau: ArrayLike,
    method: str = "pmd-mean",
    seeds: int = 100,
    rng: np.random.Generator | int = 0,
) -> SimulatedError:
    r"""Draw one group of n rewards per seed and measure its squared target error, as in the paper's figures.

    Source: arXiv:2602.05933, figures target_estimation (`per_seed`) and target_actions (`positive`, `negative`).
    Differs: the paper does not say how it averages over positives. Here it is pooled: every response with reward 1 of
    every group counts once, which estimates `target_error(...).positive`. The mean over groups of `per_seed_positive`
    is a different number, because groups with few successes weigh more in it.

    Args:
        p: pass rate in [0, 1].
        n: responses per prompt, >= 2.
        tau: temperature in units of rewards {0, 1}. p, n and tau broadcast.
        method: "pmd-mean" or "pmd-part".
        seeds: number of groups, >= 1.
        rng: a generator or its seed.
    """
    p, n, tau = pass_rates(p), group_sizes(n), temperatures(tau)
    if seeds != int(seeds) or seeds < 1:
        raise ValueError(f"seeds is {seeds}; expected a whole number of groups >= 1")
    shape = together(p=p, n=n, tau=tau)
    size = n[..., None].astype(np.float64)
    p, tau = np.broadcast_to(p, shape)[..., None], np.broadcast_to(tau, shape)[..., None]
    successes = np.random.default_rng(rng).binomial(n[..., None], p, (*shape, int(seeds))).astype(np.float64)

    def own(reward: int, shortfall: Array) -> Array:
        """[..., seeds] squared error of a response with this reward, whose peers hold the other successes."""
        peers = successes - reward
        if method == "pmd-mean":
            return ((p - peers / (size - 1)) / tau + shortfall) ** 2
        return part_gap(p, tau, np.clip(peers, 0, size - 1), size - 1) ** 2

    shortfalls = lambert_terms(p, tau) if known_method(method) == "pmd-mean" else (p, p)
    failures = size - successes
    positive = np.where(successes > 0, own(1, shortfalls[0]), np.nan)
    negative = np.where(failures > 0, own(0, shortfalls[1]), np.nan)
    sum_positive, sum_negative = (
        np.where(count > 0, count * error, 0.0) for count, error in ((successes, positive), (failures, negative))
    )
    per_seed = (sum_positive + sum_negative) / size
    return SimulatedError(
        per_seed,
        positive,
        negative,
        successes,
        per_seed.mean(-1),
        pooled(sum_positive, successes),
        pooled(sum_negative, failures),
    )


def part_gap(p: Array, tau: Array, successes: Array, peers: Array | int) -> Array:
    """log Z minus its estimate, nats; by log1p where the two are close, so that small errors keep their digits."""
    fails, share = np.exp(-1 / tau), successes / peers
    scale = np.where(share > 0, fails + (1 - fails) * share, 1.0)
    relative = (1 - fails) * (p - share) / scale
    close = (share > 0) & (np.abs(relative) < 0.5)
    apart = log_partition_estimate(p, 1, tau) - log_partition_estimate(successes, peers, tau)
    return np.where(close, np.log1p(np.where(close, relative, 0.0)), apart)


def pooled(sums: Array, counts: Array) -> Array:
    """[...] total over total; NaN where nothing was drawn."""
    total = counts.sum(-1)
    return np.where(total > 0, sums.sum(-1) / np.maximum(total, 1), np.nan)[()]
