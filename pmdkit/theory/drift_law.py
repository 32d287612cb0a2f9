r"""The drift law: a batch that is solved to rest keeps its right answers as a population keeps its genes.

One prompt, n draws, k of them right, 0 < k < n, c_y of them answer y; a free logit for each answer, PMD-mean with its
leave-one-out mean, so A = (n - k) / (n - 1) for a right draw. m is the old probability of the right answers drawn.

* tau > tau_c (`resampling_threshold`): the targets have room. Every drawn right answer rises by one ratio e^{A / tau},
  and what was not drawn keeps probability; the loss does not say how it is shared.
* tau < tau_c: the targets ask for more than 1, and answers that were not drawn lose all they had. As tau -> 0 the new
  policy is pi'(y) = c_y / k **whatever pi_old was**, as in rejection sampling. So for H = 1 - sum of squared shares
  of the right answers (`distinct_right` of a run), over the draws with k right,

$$ E[H'] = \Big(1 - \frac1k\Big) H $$

Proof: at rest w_y (A_y - tau u_y) = mu pi'(y), w = c / n, u = log pi'/pi_old. For a drawn right answer u is at most
log 1/pi_old, so tau u -> 0 and pi' -> w A / mu; a wrong one has A < 0, and pi' -> 0. Given k, the right draws are
independent with shares s, so E sum (c/k)^2 = 1/k + (1 - 1/k) sum s^2. With graded rewards pi'(y) is proportional to
the sum of the positive advantages of y.
Limits: a few passes of SGD do not solve a batch, and favour what is likely already; answers of a network share weights.
Source: not in the paper. 1 - 1/k is the factor of genetic drift with k genes: Wright, Genetics 16 (1931), 97.
"""

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.checks import Array, group_sizes, numbers, require, together


def resampling_threshold(k: ArrayLike, n: ArrayLike, m: ArrayLike) -> Array:
    r"""The temperature below which a solved batch keeps drawn answers only.

    $$ \tau_c = \frac{n - k}{n - 1} \Big/ \log\frac1m $$

    Source: not in the paper; the proof is at the top of this module.

    Args:
        k: right draws, 0 < k < n.
        n: draws of the prompt.
        m: old probability of all right answers drawn, in (0, 1). k, n and m broadcast.

    Returns: tau in units of rewards {0, 1}.

    Good values: 0.24, 0.26, 0.29 for k = 1, 2, 4 of 16 draws with m = k / 64; 0.01 for a text of 100 nats.
    Watch: the drawn wrong answers add a little mass, so the exact threshold lies slightly above.
    """
    k, n, m = numbers("k", k), group_sizes(n), numbers("m", m)
    together(k=k, n=n, m=m)
    require((k > 0) & (k < n), np.broadcast_to(k, np.broadcast_shapes(k.shape, n.shape)), "k is {}; expected 0 < k < n")
    require((m > 0) & (m < 1), m, "m is {}; expected a probability in (0, 1)")
    return (n - k) / (n - 1) / -np.log(m)
