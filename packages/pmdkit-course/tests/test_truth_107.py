"""The solutions of lesson 107 against scipy's own test, by coverage, and by tossing every coin."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import ttest_rel

from pmdkit.stats import paired_difference
from pmdkit_course.exercises import lesson_107 as lesson


def test_the_interval_is_scipys_and_the_sweeps():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 7))
    found = lesson.solved_paired_interval(first, second)
    exact = ttest_rel(second, first).confidence_interval(0.95)
    np.testing.assert_allclose(found, (exact.low, exact.high), rtol=1e-10)
    sweep = paired_difference(first, second).difference
    np.testing.assert_allclose(found, (sweep.low, sweep.high), rtol=1e-12)


@pytest.mark.slow
def test_it_covers_the_true_difference_95_times_in_100():
    """1500 comparisons of 5 seeds: 0.95 within 4 standard errors; the normal quantile, P(|t_4| < 1.96), has 0.878."""
    rng = np.random.default_rng(1)
    luck = rng.normal(size=(1500, 5))
    first, second = luck + 0.1 * rng.normal(size=luck.shape), luck + 0.3 + 0.1 * rng.normal(size=luck.shape)
    for interval, low, high in (
        (lesson.solved_paired_interval, 0.927, 0.973),
        (lesson.scaled(lambda n: 1.96), 0.844, 0.912),
        (lesson.unpaired, 0.999, 1.0),
    ):
        ends = np.array([interval(a, b) for a, b in zip(first, second, strict=True)])
        covered = ((ends[:, 0] < 0.3) & (ends[:, 1] > 0.3)).mean()
        assert low <= covered <= high


def test_chances_of_coins_by_counting_every_row_of_heads_and_tails():
    contexts, arms = 4, 6
    counted = np.zeros((contexts, arms))
    for arm in range(arms):
        for row in product((0, 1), repeat=arm + 1):
            if 1 <= sum(row) <= contexts:
                counted[sum(row) - 1, arm] += 0.5 ** (arm + 1)
    np.testing.assert_allclose(lesson.solved_coin_success(contexts, arms), counted, atol=1e-14)
