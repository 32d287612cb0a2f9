"""PMD-part's exact update: the Boltzmann reweighting, with the log partition to full relative accuracy."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.checks import Array, centred, excess, problem, ratio


@dataclass(frozen=True)
class PartSolution:
    """The PMD-part update.

    Attributes:
        log_ratio: [..., A] log pi_new/pi, nats.
        probs: [..., A] the new policy.
        log_z: [...] log E_pi e^(r/tau), nats; tau log_z is in reward units.
    """

    log_ratio: Array
    probs: Array
    log_z: Array


def pmd_part(
    pi: ArrayLike | None = None,
    reward: ArrayLike | None = None,
    tau: ArrayLike | None = None,
    *,
    log_pi: ArrayLike | None = None,
) -> PartSolution:
    r"""The policy that maximises the expected reward minus tau KL to the old policy.

    $$ u = \tfrac{r}{\tau} - \log Z, \qquad Z = E_\pi\, e^{r/\tau} $$

    Source: arXiv:2602.05933, eq. boltzmann_update; the minimiser of eq. L_partition.
    Differs: nothing; lengths do not change it, for the target satisfies the constraint by itself.

    Args:
        pi: [..., A] policy; must sum to 1 within 1e-8, and the problem solved is that of pi / sum(pi).
        reward: [..., A] reward units. Required.
        tau: scalar or [...] temperature, reward units, > 0. Required.
        log_pi: log-probabilities instead of `pi`.

    Returns:
        PartSolution; leading dimensions broadcast.

    Good values: relative error below 1e-10 for tau in [1e-4, 1e4], pass rates in [1e-12, 1 - 1e-12].
    Watch: log_z grows like max(r)/tau, so e^log_z overflows below tau = 0.0014 on rewards {0, 1}; keep the logarithm.
    """
    pi, reward, tau = problem(pi, reward, tau, log_pi)
    advantage = centred(pi, reward)
    target = advantage / tau[..., None]
    log_mean = log_mean_exp(pi, target)
    mean = (pi * reward).sum(-1) / pi.sum(-1)
    log_ratio = target - log_mean[..., None]
    return PartSolution(log_ratio, pi * ratio(log_ratio), mean / tau + log_mean)


def log_mean_exp(pi: Array, target: Array) -> Array:
    """[...] log E_pi e^target >= 0 for targets of mean 0; E(e^t - 1 - t) sums positive terms and keeps its digits."""
    total = pi.sum(-1)
    top = target.max(-1, keepdims=True, where=np.broadcast_to(pi > 0, target.shape), initial=0.0)
    near = np.log1p((pi * excess(np.minimum(target, 600.0))).sum(-1) / total)
    far = top[..., 0] + np.log((pi * np.exp(np.minimum(target - top, 0.0))).sum(-1) / total)
    return np.where(top[..., 0] <= 600, near, far)
