"""The bootstrap agrees with the textbook where the textbook knows, and resamples seeds, not responses."""

import numpy as np
import pytest

from pmdkit_lab.figures.bootstrap import bootstrap


def test_the_bootstrap_covers_as_often_as_it_says() -> None:
    """95 % of 2,000 intervals of 100 draws hold the mean; 4 standard errors of that share, and 1 % for skew."""
    draws = np.random.default_rng(1).normal(size=(2000, 100))
    low, high = bootstrap(draws, np.ones(1))
    covered = ((low < 0) & (high > 0)).mean()
    assert covered == pytest.approx(0.95, abs=4 * np.sqrt(0.95 * 0.05 / 2000) + 0.01)


def test_a_weight_is_the_number_of_responses_of_a_seed() -> None:
    """Seeds of one response each and one seed that holds as many as all: the interval knows that it is one seed."""
    values, weights = np.array([1.0] * 20 + [0.0]), np.array([1.0] * 20 + [20.0])
    low, high = bootstrap(values, weights)
    assert low < 0.3  # drawn three times: 18 / (18 + 60)
    assert high == 1.0  # not drawn at all


def test_a_seed_without_responses_is_not_read_and_none_at_all_gives_nan() -> None:
    values = np.array([[1.0, np.nan, 3.0], [np.nan, np.nan, np.nan]])
    weights = np.array([[2.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    low, high = bootstrap(values, weights)
    assert (low[0], high[0]) == (1.0, 3.0)
    assert np.isnan([low[1], high[1]]).all()
