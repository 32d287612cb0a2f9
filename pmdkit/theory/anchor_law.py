"""The anchor law: PMD-part is PMD-mean with a push away from the policy that draws, and how strong the push is."""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.between_update import shares
from pmdkit.theory.binary_rewards import mean_over_successes
from pmdkit.theory.checks import Array, group_sizes, numbers, pass_rates, require, temperatures, together
from pmdkit.theory.target_errors import leave_one_out_targets, log_partition_estimate


def anchor(p: ArrayLike, tau: ArrayLike, n: ArrayLike, k: ArrayLike = 1.0) -> Array:
    r"""Strength c of the anti-anchor: how far the baseline V_k of a group lies above the mean reward, on average.

    With L_b(pi) = E_old (r - b - tau log pi/pi_old)^2 / (2 tau), for every policy pi and every baseline b,

    $$ L_b(\pi) = L_{mean}(\pi) - c\, KL(\pi_{old}\|\pi) + \mathrm{const}, \qquad c = b - E_{\pi_{old}} r $$

    exactly: expand the square. PMD-part has c = tau log Z - E r. A baseline from the peers of a response does not
    depend on its own reward, so groups of n have the mean of theirs; for rewards {0, 1}

    $$ c_n = \frac{\tau}{k}\, E_{S\sim Bin(n-1,\,p)} \log\Big(1 + (e^{k/\tau} - 1)\frac{S}{n-1}\Big) - p $$

    Near pi_old the net pull back to it is (tau - c) KL: where c > tau, it is a push (`anchor_threshold`).
    With draws from another policy q, pass its p: q takes the place of pi_old in both means.

    Source: not in the paper; eqs. L_mean and L_partition of arXiv:2602.05933, whose losses are these divided by tau.

    Args:
        p: pass rate in [0, 1].
        tau: temperature in units of rewards {0, 1}, > 0. On rewards of +-1, give half of theirs and double c.
        n: responses per prompt, >= 2.
        k: place between PMD-mean (0, where c is 0) and PMD-part (1). p, tau, n and k broadcast.

    Returns: c >= 0 in units of rewards {0, 1}.

    Good values: error below 1e-14. For any rewards: `group_anchor`; of a known policy, `baseline_value` minus E r.
    Watch: 0 for n = 2, where the only peer is its own mean.
    """
    p, tau, n, k = pass_rates(p), temperatures(tau), group_sizes(n), shares(k)
    together(p=p, tau=tau, n=n, k=k)
    p, tau, n, k = np.broadcast_arrays(p, tau, n, k)

    def rise(_: Array, tau: Array, right: Array, peers: int) -> Array:
        """V_k minus the peers' mean reward; V_k lies between that mean and the largest reward."""
        share = right / peers
        return np.clip(tau * log_partition_estimate(right, peers, tau) - share, 0.0, 1 - share)

    return np.where(k > 0, mean_over_successes(rise, p, n - 1, tau / np.where(k > 0, k, 1.0)), 0.0)


def anchor_threshold(p: ArrayLike, n: ArrayLike, k: ArrayLike = 1.0) -> Array:
    r"""The temperature below which V_k from groups of n pushes away from pi_old: the root of c_n(tau) = tau.

    c_n falls as tau rises, from the chance of a right peer minus p to 0, so there is one root.

    Source: not in the paper. Args: as in `anchor`.

    Returns: tau in units of rewards {0, 1}; 0 where there is no push at any temperature (p of 0 or 1, n = 2, k = 0).

    Good values: relative error below 1e-12. PMD-part, p = 0.05: 0.08, 0.215, 0.25 at n = 4, 16, 64.
    """
    p, n, k = np.broadcast_arrays(pass_rates(p), group_sizes(n), shares(k))
    low, high = np.full(p.shape, -690.0), np.zeros(p.shape)  # logarithms of tau; c is below 1 at tau = 1
    for _ in range(64):
        middle = (low + high) / 2
        push = anchor(p, np.exp(middle), n, k) > np.exp(middle)
        low, high = np.where(push, middle, low), np.where(push, high, middle)
    return np.where(low > -690.0, np.exp(high), 0.0)


def group_anchor(reward: ArrayLike, tau: ArrayLike, k: ArrayLike = 1.0) -> Array:
    r"""c of one group, from its rewards alone: its mean leave-one-out baseline minus its mean reward.

    Its mean over groups is the c of the law, for rewards of any kind. It is minus the group's mean advantage.

    Source: not in the paper; eq. loo-s-part of arXiv:2602.05933.

    Args:
        reward: [..., n] rewards of the groups, n >= 2.
        tau: scalar or [...] temperature, reward units.
        k: scalar or [...] in [0, 1].

    Returns: [...] c >= 0, reward units; 0 where all rewards of a group are equal.
    """
    tau, k = temperatures(tau), shares(k)
    tau = tau / np.where(k > 0, k, 1.0)
    return np.where(k > 0, np.maximum(-tau * leave_one_out_targets(reward, tau, "pmd-part").mean(-1), 0.0), 0.0)


def anchor_growth(c: ArrayLike, tau: ArrayLike, lr: ArrayLike, fisher: ArrayLike, ministeps: ArrayLike) -> Array:
    r"""The factor by which stale ministeps multiply a deviation in a direction that the reward does not affect.

    $$ (1 + \mathrm{lr}\, f\, (c - \tau))^M $$

    Near pi_old the loss has the curvature f (tau - c) along it: above 1 the drift grows, below 1 it shrinks.

    Source: not in the paper.

    Args:
        c: strength of the anti-anchor, reward units (`anchor`).
        tau: temperature, reward units.
        lr: step size of plain gradient descent.
        fisher: f, the eigenvalue of the Fisher matrix of pi_old in that direction.
        ministeps: M, gradient steps on one batch, >= 1. All five broadcast.
    """
    steps = numbers("ministeps", ministeps)
    require(steps >= 1, steps, "ministeps is {}; expected numbers >= 1")
    return (1 + numbers("lr", lr) * numbers("fisher", fisher) * (numbers("c", c) - temperatures(tau))) ** steps
