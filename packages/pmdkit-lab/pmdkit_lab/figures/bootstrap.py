"""The bootstrap over seeds, for means whose seeds weigh differently."""

import numpy as np

from pmdkit.stats import RESAMPLES, Array


def bootstrap(values: Array, weights: Array, rng: np.random.Generator | int = 0) -> tuple[Array, Array]:
    r"""95 % interval of a weighted mean over independent seeds: the percentile bootstrap over whole seeds.

    $$ \frac{\sum_s w_s v_s}{\sum_s w_s} $$

    Args:
        values: [..., seeds]; read only where the weight is above 0.
        weights: [..., seeds] weight of each seed: 1, or its number of responses of a kind.
        rng: a generator or its seed.

    Returns:
        Lower and upper end, each [...]; NaN where all weights are 0.
    """
    seeds = values.shape[-1]
    times = np.random.default_rng(rng).multinomial(seeds, np.full(seeds, 1 / seeds), RESAMPLES).T.astype(float)
    sums = np.where(weights > 0, weights * values, 0.0) @ times
    totals = np.broadcast_to(weights, values.shape) @ times
    ratio = np.divide(sums, totals, out=np.full_like(sums, np.nan), where=totals > 0)
    low, high = np.full(values.shape[:-1], np.nan), np.full(values.shape[:-1], np.nan)
    some = ~np.isnan(ratio).all(-1)
    low[some], high[some] = np.nanpercentile(ratio[some], [2.5, 97.5], axis=-1)
    return low, high
