"""When draws mislead PMD-part: groups whose peers misjudge the partition function. At known pass rates: theory.

A run knows its groups and not its pass rates, so the test here asks the group alone: how many of its n draws are right.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pmdkit.theory.binomial import probabilities

Values = NDArray[np.float64]


def misjudged(successes: ArrayLike, n: ArrayLike, tau: ArrayLike) -> NDArray[np.bool_]:
    r"""Whether the peers of some response misjudge the partition function by more than a factor e, one nat.

    $$ Z(q) = 1 + (e^{1/\tau} - 1)\,q, \qquad
       \Big|\log Z(\hat p) - \log Z\Big(\frac{S - r_i}{n - 1}\Big)\Big| > 1 \text{ for some } i, \quad
       \hat p = \frac{S + 1/2}{n + 1} $$

    Source: arXiv:2602.05933, eq. loo-s-part and Proposition tgt_err_clean (b), which bounds this error. The threshold
    is not in the paper: a nat of log Z is a nat of the response's target, a factor e in the ratio it is told to reach.
    Differs: the pass rate is the group's own smoothed one, since a run does not know the true one.

    Args:
        successes: right responses S of a group; shapes broadcast.
        n: its responses, >= 2.
        tau: temperature over the gap of the two rewards; NaN stands for an objective without one: the limit tau to 0.

    Good values: at tau up to 0.1 and n up to 256 these are the groups with at most one right response. Peers that are
    all right mislead little, since the pass rate is near 1 then. From tau = 1 on there are none: log Z is below a nat.
    """
    right, size, heat = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (successes, n, tau)))
    floor = np.exp(-1 / np.where(np.isnan(heat), 1e-4, heat))  # Z e^(-1/tau) = floor + (1 - floor) q does not overflow

    def partition(share: Values) -> Values:
        return floor + (1 - floor) * share

    ours = partition((right + 0.5) / (size + 1))
    wild = np.zeros(right.shape, dtype=bool)
    for reward, there in ((1, right > 0), (0, right < size)):
        peers = partition(np.maximum(right - reward, 0) / (size - 1))
        wild |= there & ((ours > np.e * peers) | (peers > np.e * ours))
    return wild


def expected(p: ArrayLike, n: ArrayLike, tau: ArrayLike) -> Values:
    r"""The share of groups that are `misjudged`, exactly over the binomial count S of right responses.

    $$ \sum_{S=0}^{n} \binom nS p^S (1-p)^{n-S}\, 1[\text{misjudged}(S, n, \tau)] $$

    Args:
        p: [...] pass rates in [0, 1].
        n: [...] responses per prompt, >= 2.
        tau: as in `misjudged`.
    """
    rate, size, heat = np.broadcast_arrays(*(np.asarray(x, dtype=np.float64) for x in (p, n, tau)))
    share = np.empty(rate.shape)
    for count in np.unique(size):
        rows = size == count
        wild = misjudged(np.arange(count + 1), count, heat[rows][..., None])
        share[rows] = (probabilities(int(count), rate[rows]) * wild).sum(-1)
    return share


def columns(reward: Values, present: NDArray[np.bool_], passed: float, tau: Values, rate: Values) -> dict[str, Values]:
    """`noise_share` of the groups of a step, 0 or 1 each, and what to expect at their pass rates.

    Args:
        reward: [P, G] of draws.
        present: [P, G] which of them count.
        passed: halfway between the two rewards.
        tau: [P] reward units, NaN for an objective without one.
        rate: [P] pass rates to expect from: exact ones, or those of the groups.

    Returns:
        Two columns [P]; NaN for a group with fewer than two responses, and everywhere where rewards take more values
        than two: their log partition is not a function of a pass rate.
    """
    from_middle = np.where(present, np.abs(reward - passed), np.nan)
    found = unknown(len(reward))
    known = from_middle[present]
    if not known.size or known.min() <= 0 or not np.allclose(known, known[0], rtol=1e-9, atol=0):
        return found
    size = present.sum(1)
    rows = size >= 2
    heat = tau[rows] / (2 * known[0])
    right = (present & (reward > passed)).sum(1)[rows]
    found["noise_share"][rows] = misjudged(right, size[rows], heat)
    found["theory_noise_share"][rows] = expected(rate[rows], size[rows], heat)
    return found


def unknown(prompts: int) -> dict[str, Values]:
    """The columns on the full support: the partition function is exact there, nobody estimates it."""
    return {name: np.full(prompts, np.nan) for name in ("noise_share", "theory_noise_share")}
