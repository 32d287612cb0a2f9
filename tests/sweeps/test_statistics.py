"""Intervals and paired differences against values worked by hand."""

import math

import numpy as np
import pytest

from pmdkit.sweeps.statistics import mean_interval, paired


def test_interval_by_hand():
    """1, 2, 3, 4, 5: mean 3, s = sqrt(2.5), t_{0.975, 4} = 2.7764451052."""
    end = mean_interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0]))
    half = 2.7764451052 * math.sqrt(2.5 / 5)
    assert (end.mean, end.count) == (3.0, 5)
    assert end.low == pytest.approx(3 - half, abs=1e-9)
    assert end.high == pytest.approx(3 + half, abs=1e-9)


def test_one_value_has_no_interval():
    end = mean_interval(np.array([0.7]))
    assert (end.mean, end.low, end.high, end.count) == (0.7, None, None, 1)
    with pytest.raises(ValueError, match="expected at least one"):
        mean_interval(np.array([]))


def test_paired_difference_by_hand():
    """Seeds differ by far more than methods: unpaired the intervals overlap, paired the difference is exact."""
    first = np.array([0.1, 0.5, 0.9, 0.3])
    versus = paired(first, first + np.array([0.02, 0.02, 0.02, 0.02]))
    assert versus.difference.mean == pytest.approx(0.02)
    assert versus.difference.high - versus.difference.low == pytest.approx(0, abs=1e-12)
    assert (versus.wins, versus.ties) == (4, 0)
    mixed = paired(first, np.array([0.2, 0.5, 0.8, 0.1]))
    assert (mixed.wins, mixed.ties) == (1, 1)
    assert mixed.difference.mean == pytest.approx(-0.05)
    with pytest.raises(ValueError, match="one per seed"):
        paired(first, first[:2])


def test_the_interval_covers_as_often_as_it_says():
    """20 000 groups of five normal draws: 95 % within four standard errors of the count."""
    draws = np.random.default_rng(0).normal(size=(20_000, 5))
    ends = [mean_interval(row) for row in draws]
    covered = np.mean([end.low <= 0 <= end.high for end in ends])
    assert abs(covered - 0.95) < 4 * math.sqrt(0.95 * 0.05 / 20_000)
