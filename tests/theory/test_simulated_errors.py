"""Simulated groups against the exact errors, within four standard errors, and what the split means."""

import numpy as np
import pytest

from pmdkit import theory


@pytest.mark.parametrize("method", theory.METHODS)
def test_simulation_meets_the_exact_error(method):
    """Mean, positive and negative over 20,000 groups each; pooled ratios with the standard error of a ratio."""
    p, n, tau = np.array([0.01, 0.05, 0.2])[:, None], np.array([4, 16, 64]), 0.05
    drawn = theory.simulate_target_error(p, n, tau, method, seeds=20_000, rng=90)
    exact = theory.target_error(p, n, tau, method)
    seeds = drawn.per_seed.shape[-1]
    assert (np.abs(drawn.mean - exact.mean) < 4 * drawn.per_seed.std(-1) / np.sqrt(seeds)).all()
    failures = n[:, None] - drawn.positives
    for pooled, each, count, expected in (
        (drawn.positive, drawn.per_seed_positive, drawn.positives, exact.positive),
        (drawn.negative, drawn.per_seed_negative, failures, exact.negative),
    ):
        spread = np.where(count > 0, count * (np.nan_to_num(each) - pooled[..., None]), 0).std(-1)
        assert (np.abs(pooled - expected) <= 4 * spread / count.mean(-1) / np.sqrt(seeds) + 1e-12).all()


def test_seeds_repeat_and_the_parts_add_up():
    first, again = (theory.simulate_target_error(0.2, 8, 0.05, "pmd-part", 50, rng=7) for _ in range(2))
    np.testing.assert_array_equal(first.per_seed, again.per_seed)
    total = np.nan_to_num(first.per_seed_positive) * first.positives
    total += np.nan_to_num(first.per_seed_negative) * (8 - first.positives)
    np.testing.assert_allclose(total / 8, first.per_seed, rtol=1e-12)
    np.testing.assert_allclose(first.per_seed.mean(), first.mean)


def test_a_group_is_scored_by_its_own_targets():
    """per_seed is bar Delta^2 of a group with that many successes, from the targets and the exact update."""
    p, n, tau = 0.3, 5, 0.1
    for method in theory.METHODS:
        drawn, best = theory.simulate_target_error(p, n, tau, method, 40, rng=8), theory.binary(p, tau, method)
        for successes, error in zip(drawn.positives.astype(int), drawn.per_seed, strict=True):
            reward = np.array([1.0] * successes + [0.0] * (n - successes))
            ideal = np.where(reward == 1, best.log_ratio_pos, best.log_ratio_neg)
            by_hand = ((theory.leave_one_out_targets(reward, tau, method) - ideal) ** 2).mean()
            np.testing.assert_allclose(error, by_hand, rtol=1e-10)


def test_averaging_over_positives_has_several_readings():
    """p = 0.05, n = 64, PMD-part: pooled 11.7; the mean over groups that have positives is more than twice that."""
    drawn = theory.simulate_target_error(0.05, 64, 0.05, "pmd-part", 100_000, rng=9)
    np.testing.assert_allclose(drawn.positive, 11.7, rtol=0.03)
    np.testing.assert_allclose(drawn.negative, drawn.positive, rtol=0.05)
    assert np.nanmean(drawn.per_seed_positive) > 2 * drawn.positive


def test_without_a_single_success_the_positive_error_is_unknown():
    drawn = theory.simulate_target_error(0.0, 4, 0.1, "pmd-mean", 5, rng=0)
    assert np.isnan(drawn.positive)
    assert drawn.negative == drawn.mean == 0


def test_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match="seeds is 0; expected a whole number"):
        theory.simulate_target_error(0.1, 4, 0.1, seeds=0)
    with pytest.raises(ValueError, match="unknown method 'part'"):
        theory.simulate_target_error(0.1, 4, 0.1, "part")
