"""How often PMD-part's target is noise: peers that all agree. Rewards {0, 1}. Errors in nats: target_errors.py."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pmdkit.theory.binary_rewards import binary
from pmdkit.theory.binomial import probabilities
from pmdkit.theory.inputs import Array, group_sizes, pass_rates, rewards, temperatures, together
from pmdkit.theory.target_errors import part_gap


@dataclass(frozen=True)
class NoiseShare:
    """Shares between 0 and 1, each of the broadcast shape of p and tau.

    Attributes:
        response: responses whose peers all have one reward; their log partition is that of a prompt never or always
            solved, whatever p and tau are.
        touched: groups with such a response.
        silent: groups with one reward only; all their targets are 0.
        drowned: groups whose mean squared target error is above the mean square of the ideal log ratios.
    """

    response: Array
    touched: Array
    silent: Array
    drowned: Array


def noise_share(p: ArrayLike, n: int, tau: ArrayLike) -> NoiseShare:
    r"""How much of PMD-part's targets is noise, exactly over the binomial count S of right responses of a group.

    $$ \text{response} = p^{n-1} + (1-p)^{n-1}, \quad \text{touched} = P(S \in \{0, 1, n-1, n\}), \quad
       \text{silent} = p^n + (1-p)^n $$
    $$ \text{drowned} = P\Big(\tfrac{S}{n}\Delta_+^2 + \tfrac{n-S}{n}\Delta_-^2
       > p\,(\log\rho_+)^2 + (1-p)(\log\rho_-)^2\Big), \quad \Delta = \log Z - \log\hat Z_{-i} $$

    Source: arXiv:2602.05933, eq. loo-s-part and Lemma erm_loo; the shares are not in the paper.

    Args:
        p: pass rate in [0, 1]; broadcasts with tau.
        n: responses per prompt, >= 2.
        tau: temperature in units of rewards {0, 1}. Only `drowned` depends on it.

    Watch: peers that agree mislead by log Z or 1/tau - log Z nats, so small temperatures make it worse. At p = 0.01,
    tau = 0.05 in groups of 16: 86 % of responses, 99 % of groups touched, 85 % drowned, 15.4 nats off.
    """
    size = int(group_sizes(n))
    p, tau = pass_rates(p), temperatures(tau)
    together(p=p, tau=tau)
    p, tau = np.broadcast_arrays(p, tau)
    shares = probabilities(size, p)
    counts = np.arange(size + 1)
    agree = (counts <= 1) | (counts >= size - 1)
    error, signal = group_errors(p, tau, size)
    return NoiseShare(
        (p ** (size - 1) + (1 - p) ** (size - 1))[()],
        shares[..., agree].sum(-1),
        (p**size + (1 - p) ** size)[()],
        (shares * (error > signal[..., None])).sum(-1),
    )


def group_errors(p: Array, tau: Array, n: int) -> tuple[Array, Array]:
    """[..., n + 1] mean squared target error of a group by its successes, [...] mean square of the ideal log ratios."""
    best = binary(p, tau, "pmd-part")
    signal = p * best.log_ratio_pos**2 + (1 - p) * best.log_ratio_neg**2
    successes = np.arange(n + 1.0)
    # a group without successes has no response of that kind: its weight is 0, and any count of peers will do
    peers_of_right, peers_of_wrong = np.maximum(successes - 1, 0), np.minimum(successes, n - 1)
    right, wrong = (part_gap(p[..., None], tau[..., None], of, n - 1) for of in (peers_of_right, peers_of_wrong))
    return (successes * right**2 + (n - successes) * wrong**2) / n, signal


def peers_agree(reward: ArrayLike) -> NDArray[np.bool_]:
    """[..., n] whether all other responses of the group have one reward, so that they say nothing about log Z.

    Source: arXiv:2602.05933, eq. loo-s-part. For any rewards, n >= 2; `.any(-1).mean()` is the share of groups touched,
    `.mean()` the share of responses.
    """
    values = rewards(reward)
    group_sizes(values.shape[-1])
    low, high = values.min(-1, keepdims=True), values.max(-1, keepdims=True)
    # the peers agree where the group does, or where all but this response sit at one end
    alone_high = (values == high) & ((values == low).sum(-1, keepdims=True) == values.shape[-1] - 1)
    alone_low = (values == low) & ((values == high).sum(-1, keepdims=True) == values.shape[-1] - 1)
    agreed: NDArray[np.bool_] = (low == high) | alone_high | alone_low
    return agreed
