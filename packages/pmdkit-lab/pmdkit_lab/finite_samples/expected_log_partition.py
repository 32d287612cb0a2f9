"""The log partition that a group of draws sees, on average: PMD-part's bias."""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit import theory
from pmdkit.theory import inputs
from pmdkit.theory.binary_rewards import binomial_probabilities
from pmdkit.theory.inputs import Array


def expected_log_partition(p: ArrayLike, n: int, tau: ArrayLike) -> Array:
    r"""Mean of the leave-one-out log partition of a group of n, rewards {0, 1}, exactly, nats.

    $$ E \log\hat Z_{n-1} = E_{S\sim Bin(n-1,\,p)} \log\Big(1 + (e^{1/\tau} - 1)\frac{S}{n-1}\Big) \le \log Z $$

    Source: arXiv:2602.05933, eq. loo-s-part averaged over the peers; not in the paper.

    Args:
        p: pass rate in [0, 1]; broadcasts with tau.
        n: responses per prompt, >= 2.
        tau: temperature in units of rewards {0, 1}.

    Watch: in small groups it lies far below log Z (2.4 against 15.4 nats at p = 0.01, tau = 0.05, n = 16): PMD-part
    from draws is then a different update from the Boltzmann reweighting, one that moves less.
    """
    m = int(inputs.group_sizes(n)) - 1
    p, tau = inputs.pass_rates(p), inputs.temperatures(tau)
    inputs.together(p=p, tau=tau)
    p, tau = np.broadcast_arrays(p, tau)
    return (binomial_probabilities(m, p) * theory.log_partition_estimate(np.arange(m + 1), m, tau[..., None])).sum(-1)
