"""Targets from draws: what a response is told to become when its peers estimate the baseline. Errors are elsewhere."""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.binomial import probabilities
from pmdkit.theory.inputs import Array, group_sizes, known_method, numbers, pass_rates, rewards, temperatures, together


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


def expected_log_partition(p: ArrayLike, n: int, tau: ArrayLike) -> Array:
    r"""Mean of the leave-one-out log partition of a group of n, rewards {0, 1}, exactly, nats.

    $$ E \log\hat Z_{n-1} = E_{S\sim Bin(n-1,\,p)} \log\Big(1 + (e^{1/\tau} - 1)\frac{S}{n-1}\Big) \le \log Z $$

    Source: arXiv:2602.05933, eq. loo-s-part averaged over the peers; not in the paper.

    Args:
        p: pass rate in [0, 1]; broadcasts with tau.
        n: responses per prompt, >= 2.
        tau: temperature in units of rewards {0, 1}.

    Watch: in small groups it lies far below log Z (2.4 against 15.4 nats at p = 0.01, tau = 0.05, n = 16): PMD-part
    from draws is then another update than the Boltzmann reweighting, one that moves less.
    """
    m = int(group_sizes(n)) - 1
    p, tau = pass_rates(p), temperatures(tau)
    together(p=p, tau=tau)
    p, tau = np.broadcast_arrays(p, tau)
    return (probabilities(m, p) * log_partition_estimate(np.arange(m + 1), m, tau[..., None])).sum(-1)
