"""Buckets of the gauge: means over prompts, and merging many steps is the same as one large step."""

import numpy as np

from pmdkit.observe import gauge


def columns(rng, count):
    return {name: rng.normal(size=count) for name in gauge.COLUMNS}


def test_a_bucket_is_the_mean_of_its_prompts():
    rate = np.array([0.0, 0.01, 0.5, 1.0])
    values = {name: np.array([1.0, 3.0, 5.0, np.nan]) for name in gauge.COLUMNS}
    low, middle, high = gauge.fill(rate, values)
    assert (low["bucket"], low["prompts"], low["pass_rate"], low["log_ratio_neg"]) == (0, 2, 0.005, 2.0)
    assert (middle["bucket"], middle["log_ratio_pos"]) == (3, 5.0)
    assert (high["bucket"], high["log_ratio_pos"]) == (5, None)


def test_merged_steps_equal_one_large_step():
    rng = np.random.default_rng(0)
    rates = rng.random((4, 50))
    steps = [columns(rng, 50) for _ in range(4)]
    merged = gauge.merge(gauge.fill(rate, step) for rate, step in zip(rates, steps, strict=True))
    whole = gauge.fill(rates.ravel(), {n: np.concatenate([s[n] for s in steps]) for n in gauge.COLUMNS})
    for got, wanted in zip(merged, whole, strict=True):
        assert (got["bucket"], got["prompts"]) == (wanted["bucket"], wanted["prompts"])
        np.testing.assert_allclose([got[n] for n in gauge.COLUMNS], [wanted[n] for n in gauge.COLUMNS], rtol=1e-12)
