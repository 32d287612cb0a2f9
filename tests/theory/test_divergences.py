"""KL, chi-square and total variation: closed forms, small distances, and the inequalities the paper uses."""

import numpy as np
import pytest

from pmdkit import theory
from pmdkit.theory.divergences import kl_of_ratio


def test_two_point_closed_forms():
    a, b = 0.3, 0.8
    np.testing.assert_allclose(theory.kl([a, 1 - a], [b, 1 - b]), a * np.log(a / b) + 0.7 * np.log(0.7 / 0.2))
    np.testing.assert_allclose(theory.chi2([a, 1 - a], [b, 1 - b]), (a - b) ** 2 / (b * (1 - b)))
    np.testing.assert_allclose(theory.tv([a, 1 - a], [b, 1 - b]), abs(a - b))


def test_small_distances_keep_their_digits():
    """KL = chi2 / 2 to first order; the naive sum of p log(p/q) would be rounding noise at 1e-16."""
    h = 1e-8
    old, step = np.array([0.5, 0.5]), np.array([h, -h])
    np.testing.assert_allclose(theory.kl(old + step, old), 2 * h**2, rtol=1e-7)
    np.testing.assert_allclose(theory.chi2(old + step, old), 4 * h**2, rtol=1e-7)


def test_kl_at_most_chi2_and_pinsker():
    """The paper's KL <= chi2; and 2 TV^2 <= KL."""
    rng = np.random.default_rng(40)
    new, old = rng.dirichlet(np.full(8, 0.3), 500), rng.dirichlet(np.full(8, 0.3), 500)
    kl, chi2, tv = theory.kl(new, old), theory.chi2(new, old), theory.tv(new, old)
    assert (2 * tv**2 <= kl).all()
    assert (kl <= chi2).all()


def test_zeros():
    assert theory.kl([0.0, 1.0], [0.5, 0.5]) == pytest.approx(np.log(2))
    assert theory.kl([0.5, 0.5], [0.0, 1.0]) == theory.chi2([0.5, 0.5], [0.0, 1.0]) == np.inf
    assert theory.kl([0.0, 1.0], [0.0, 1.0]) == theory.chi2([0.0, 1.0], [0.0, 1.0]) == 0


def test_from_log_ratios():
    rng = np.random.default_rng(41)
    new, old = rng.dirichlet(np.ones(6), 20), rng.dirichlet(np.ones(6), 20)
    np.testing.assert_allclose(kl_of_ratio(old, np.log(new / old)), theory.kl(new, old), rtol=1e-11)
    assert kl_of_ratio(np.array([0.5, 0.5]), np.array([np.log(2), -1e4])) == pytest.approx(np.log(2))


def test_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match="the policies have 2 and 3 actions"):
        theory.kl([0.5, 0.5], [0.2, 0.3, 0.5])
