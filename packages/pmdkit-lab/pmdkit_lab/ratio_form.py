r"""How many rests a loss has: the gain in the ratio, -rho A + tau/2 log^2 rho, against that in the log ratio.

**Ratio form.** One prompt, z = pi / pi_old, F = E_old[tau/2 log^2 z - r z]: a baseline is a constant here. At a minimum
**at most one response has a ratio above e**. Proof: F is infinite at z = 0, so a minimum is inside, and
tau log z / z = r - lam for all responses. In z the Hessian is diagonal, pi_old tau (1 - log z) / z^2: negative exactly
where z > e. With two negative entries, moving mass from one to the other lowers F. With one, w, the least that the
others can add to it gives the condition of `at_minimum`. So several rests may exist, and equal rewards may end unequal.
Where the square is per token, as in `pmd-token`, this holds for the tokens after each prefix, with the value of a token
under pi_old for r; several responses may then rise above e.

**Log form.** -A log z + tau/2 log^2 z, which are PMD-mean and PMD-part: A = r - b with b <= tau log Z has **one rest**,
a minimum, in which equal rewards have equal ratios. Proof: tau log z + lam z = A. Its mean under pi_old is
lam = tau KL(pi_old || pi) + E A. If lam < 0, every z exceeds e^{A/tau}, and E e^{A/tau} >= 1, so the ratios would
average more than 1. With lam >= 0 each z falls in lam, so one lam remains; the Hessian is pi_old (tau + lam z)/z^2 > 0.

None of this explains lost diversity: with steps as small as those of training, the gradient alone decides which of two
equal answers runs ahead, under every loss (`benchmarks/distinct_answers.py`).
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pmdkit.theory.checks import Array, numbers, pass_rates, policy, together


def at_minimum(pi: ArrayLike, log_ratio: ArrayLike) -> NDArray[np.bool_]:
    r"""Whether a stationary policy of the ratio form is a strict local minimum; its rewards are not needed.

    $$ \text{no } z_y > e, \quad\text{or one, } w, \text{ and}\quad
       \frac{\pi'_w z_w}{\log z_w - 1} > \sum_{y \ne w} \frac{\pi'_y z_y}{1 - \log z_y}, \qquad \pi' = \pi z $$

    Source: not in the paper; the loss is eq. 1 of arXiv:2602.02276 (Kimi K2.5), without a band, on one token.

    Args:
        pi: [..., A] the old policy.
        log_ratio: [..., A] log z of a stationary policy, nats.

    Returns: [...] False also beside a ratio of exactly e, where the second order does not decide.
    """
    pi, u = policy(pi), numbers("log_ratio", log_ratio)
    if not (u < np.inf).all():
        raise ValueError("log_ratio has an entry that is NaN or inf; expected log z of a policy, nats")
    together(pi=pi, log_ratio=u)
    pi, u = np.broadcast_arrays(pi, u)
    bend = np.where(u == 1, 1.0, 1 - u)
    reach = pi * np.exp(2 * u) / bend  # the inverse curvature times tau
    return ~(u == 1).any(-1) & (((u > 1).sum(-1) == 0) | (((u > 1).sum(-1) == 1) & (reach.sum(-1) < 0)))


def winner_threshold(p: ArrayLike) -> Array:
    r"""The temperature below which the ratio form crowns one right response at each of its minima, rewards {0, 1}.

    $$ \tau^*(p) = \Big(\frac1e - \frac{\log w}{w}\Big)^{-1}, \qquad w = \frac{1 - ep}{1 - p} $$

    At tau >= tau* one minimum treats all right responses alike, whatever their number. Below it, every minimum has one
    of them above e, each of them in one minimum, and the others at one common ratio from 1 to e. Proof: a minimum
    without a ratio above e has all right responses at one z <= e; as lam falls, so rises its total mass, which at z = e
    is pe + (1 - p) w with log w / w = 1/e - 1/tau. That is 1 at tau*, and less below it.

    Source: not in the paper.

    Args:
        p: pass rate of the old policy in [0, 1].

    Returns: tau in units of rewards {0, 1}: from e at p = 0 to 0 at p = 1/e and above, where no winner is needed.

    Good values: 2.12, 1.35, 0.18 at p = 0.05, 0.125, 0.3.
    """
    p = pass_rates(p)
    rare = p < 1 / np.e
    share = np.where(rare, p, 0.0)
    log_w = np.log1p(-np.e * share) - np.log1p(-share)
    return np.where(rare, 1 / (1 / np.e - log_w * np.exp(-log_w)), 0.0)
