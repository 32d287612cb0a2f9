"""The log partition that a group of draws sees, on average: PMD-part's bias."""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit import theory
from pmdkit.theory import inputs
from pmdkit.theory.binary_rewards import mean_over_successes
from pmdkit.theory.inputs import Array


def expected_log_partition(p: ArrayLike, n: ArrayLike, tau: ArrayLike) -> Array:
    r"""Mean of the leave-one-out log partition of a group of n, rewards {0, 1}, exactly, nats.

    $$ E \log\hat Z_{n-1} = E_{S\sim Bin(n-1,\,p)} \log\Big(1 + (e^{1/\tau} - 1)\frac{S}{n-1}\Big) \le \log Z $$

    Source: arXiv:2602.05933, eq. loo-s-part averaged over the peers; not in the paper.

    Args:
        p: pass rate in [0, 1].
        n: responses per prompt, >= 2.
        tau: temperature in units of rewards {0, 1}. p, n and tau broadcast.

    Watch: in small groups it lies far below log Z (2.4 against 15.4 nats at p = 0.01, tau = 0.05, n = 16): PMD-part
    from draws is then a different update from the Boltzmann reweighting, one that moves less.
    """
    p, n, tau = inputs.pass_rates(p), inputs.group_sizes(n), inputs.temperatures(tau)
    inputs.together(p=p, n=n, tau=tau)
    p, n, tau = np.broadcast_arrays(p, n, tau)
    return mean_over_successes(lambda _, heat, right, m: theory.log_partition_estimate(right, m, heat), p, n - 1, tau)
