"""Exact pass rates over many updates."""

from itertools import pairwise

import numpy as np
import pytest

from pmdkit import theory


@pytest.mark.parametrize("method", theory.METHODS)
def test_each_step_is_the_exact_update(method):
    path = theory.trajectory(0.01, 0.05, 6, method)
    assert path[0] == 0.01
    for before, after in pairwise(path):
        eta = theory.binary(before, 0.05, method).eta
        np.testing.assert_allclose(after, 1 - (1 - eta) * (1 - before), rtol=1e-12)


def test_pmd_part_multiplies_the_odds():
    """log odds grow by 1/tau a step, whatever p."""
    path = theory.trajectory([1e-9, 0.01, 0.5], 2.0, 30, "pmd-part")
    odds = np.log(path) - np.log1p(-path)
    np.testing.assert_allclose(np.diff(odds), 0.5, rtol=1e-8)


def test_it_rises_to_one_and_stays_at_the_ends():
    path = theory.trajectory([0.0, 1e-12, 0.3, 1.0], 0.05, 60)
    assert path.shape == (4, 61)
    assert (np.diff(path) >= 0).all()
    np.testing.assert_array_equal(path[[0, 3], -1], [0, 1])
    np.testing.assert_allclose(path[1:3, -1], 1, rtol=1e-15)


def test_pmd_mean_is_the_slower_of_the_two():
    """From a hard prompt PMD-part needs one step, PMD-mean several: the price of its caution."""
    mean, part = (theory.trajectory(0.001, 0.05, 10, method) for method in theory.METHODS)
    assert (mean <= part).all()
    assert part[1] > 0.99 > mean[2]


def test_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match="steps is -1; expected a whole number"):
        theory.trajectory(0.1, 0.1, -1)
    with pytest.raises(ValueError, match="did you mean 'pmd-part'"):
        theory.trajectory(0.1, 0.1, 1, "pmd-prt")
