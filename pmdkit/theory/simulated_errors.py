"""How wrong leave-one-out targets are in simulated groups, rewards {0, 1}: what the paper's figures draw."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from pmdkit.theory.inputs import Array, group_sizes, known_method, pass_rates, temperatures, together
from pmdkit.theory.target_errors import mean_shortfall, part_gap


@dataclass(frozen=True)
class SimulatedError:
    """Squared target errors of simulated groups, nats^2; leading dimensions are those of p, n and tau.

    Attributes:
        per_seed: [..., seeds] bar Delta^2, the mean over the n responses of one group.
        per_seed_positive: [..., seeds] the mean over the group's responses with reward 1; NaN where it has none.
        per_seed_negative: [..., seeds] the same for reward 0.
        positives: [..., seeds] how many responses of the group have reward 1.
        mean: [...] mean of per_seed.
        positive: [...] pooled: the mean over the responses with reward 1 of all groups together; NaN without any.
        negative: [...] pooled over all responses with reward 0.
    """

    per_seed: Array
    per_seed_positive: Array
    per_seed_negative: Array
    positives: Array
    mean: Array
    positive: Array
    negative: Array


def simulate_target_error(
    p: ArrayLike,
    n: ArrayLike,
    tau: ArrayLike,
    method: str = "pmd-mean",
    seeds: int = 100,
    rng: np.random.Generator | int = 0,
) -> SimulatedError:
    r"""Draw one group of n rewards per seed and measure its squared target error, as in the paper's figures.

    Source: arXiv:2602.05933, figures target_estimation (`per_seed`) and target_actions (`positive`, `negative`).
    Differs: the paper does not say how it averages over positives. Here it is pooled: every response with reward 1 of
    every group counts once, which estimates `target_error(...).positive`. The mean over groups of `per_seed_positive`
    is another number, for groups with few successes weigh more in it.

    Args:
        p: pass rate in [0, 1].
        n: responses per prompt, >= 2.
        tau: temperature in units of rewards {0, 1}. p, n and tau broadcast.
        method: "pmd-mean" or "pmd-part".
        seeds: number of groups, >= 1.
        rng: a generator or its seed.
    """
    p, n, tau = pass_rates(p), group_sizes(n), temperatures(tau)
    if seeds != int(seeds) or seeds < 1:
        raise ValueError(f"seeds is {seeds}; expected a whole number of groups >= 1")
    shape = together(p=p, n=n, tau=tau)
    size = n[..., None].astype(np.float64)
    p, tau = np.broadcast_to(p, shape)[..., None], np.broadcast_to(tau, shape)[..., None]
    successes = np.random.default_rng(rng).binomial(n[..., None], p, (*shape, int(seeds))).astype(np.float64)

    def own(reward: int, shortfall: Array) -> Array:
        """[..., seeds] squared error of a response with this reward, whose peers hold the other successes."""
        peers = successes - reward
        if method == "pmd-mean":
            return ((p - peers / (size - 1)) / tau + shortfall) ** 2
        return part_gap(p, tau, np.clip(peers, 0, size - 1), size - 1) ** 2

    shortfalls = mean_shortfall(p, tau) if known_method(method) == "pmd-mean" else (p, p)
    failures = size - successes
    positive = np.where(successes > 0, own(1, shortfalls[0]), np.nan)
    negative = np.where(failures > 0, own(0, shortfalls[1]), np.nan)
    sum_positive, sum_negative = (
        np.where(count > 0, count * error, 0.0) for count, error in ((successes, positive), (failures, negative))
    )
    per_seed = (sum_positive + sum_negative) / size
    return SimulatedError(
        per_seed,
        positive,
        negative,
        successes,
        per_seed.mean(-1),
        pooled(sum_positive, successes),
        pooled(sum_negative, failures),
    )


def pooled(sums: Array, counts: Array) -> Array:
    """[...] total over total; NaN where nothing was drawn."""
    total = counts.sum(-1)
    return np.where(total > 0, sums.sum(-1) / np.maximum(total, 1), np.nan)[()]
