"""The best baseline of the family from mean reward to log partition, for steps from draws."""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.between_update import shares
from pmdkit.theory.checks import Array
from pmdkit_lab.finite_samples.sampled_steps import sampled_step

KS = (0.0, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0)
"The grid of `best_k`; finer where V_k leaves the mean."
GAIN_TOL = 1e-9  # pass rate; gains that differ by less count as equal


@dataclass(frozen=True)
class BestK:
    """Attributes: k [...] the best of the grid; gain [..., K] expected gain in pass rate at each k; ks [K] the grid."""

    k: Array
    gain: Array
    ks: Array


def best_k(
    p: ArrayLike,
    tau: ArrayLike,
    n: int,
    *,
    ks: tuple[float, ...] = KS,
    false_positive: float = 0.0,
    false_negative: float = 0.0,
) -> BestK:
    r"""The k whose step from n draws gains most by `sampled_step`; the smallest if several are equal.

    $$ k^\star = \arg\max_k\; E_{draws}\,[p'_k] - p $$

    Source: not in the paper.

    Args:
        p, tau, n, false_positive, false_negative: as in `sampled_step`.
        ks: the grid, values in [0, 1].

    Watch: without verifier errors the largest k was best in every case tried with p <= 0.5 or tau < 1.7; for easy
    prompts at a larger tau k = 0 gains up to 0.3 % more. With false negatives the largest is best for hard prompts
    and 0 for easy ones; what lies between is hardly ever best.
    """
    grid = np.sort(shares(ks).reshape(-1))
    step = partial(sampled_step, p, tau, n, false_positive=false_positive, false_negative=false_negative)
    gain = np.stack([step(k=float(k)).gain for k in grid], -1)
    best = (gain >= gain.max(-1, keepdims=True) - GAIN_TOL).argmax(-1)
    return BestK(grid[best], gain, grid)
