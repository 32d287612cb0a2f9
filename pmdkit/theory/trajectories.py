"""Exact pass rates over many updates: what an ideal run without sampling error does."""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.binary_rewards import from_masses
from pmdkit.theory.inputs import Array, known_method, pass_rates, temperatures, together


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
    for _ in range(int(steps)):
        update = from_masses(p, q, tau, known_method(method))
        p, q = p * np.exp(np.minimum(update.log_ratio_pos, 709.0)), q * np.exp(update.log_ratio_neg)
        p, q = p / (p + q), q / (p + q)
        path.append(p)
    return np.stack(path, -1)
