"""Intervals for figures with draws: the percentile bootstrap over seeds. What is drawn is elsewhere."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

RESAMPLES = 2000


def bootstrap(values: Array, weights: Array, rng: np.random.Generator | int = 0) -> tuple[Array, Array]:
    r"""95 % interval of a weighted mean over independent seeds, by resampling whole seeds.

    $$ \frac{\sum_s w_s v_s}{\sum_s w_s} $$

    Args:
        values: [..., seeds]; read only where the weight is above 0.
        weights: [..., seeds] how much a seed holds: 1, or its number of responses of a kind.
        rng: a generator or its seed.

    Returns:
        Lower and upper end, each [...]; NaN where no seed has a weight.
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
