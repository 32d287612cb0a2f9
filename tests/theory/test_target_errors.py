"""Exact target errors: enumeration of every group, high precision in large groups, and the closed form."""

import itertools

import mpmath as mp
import numpy as np
import pytest

from pmdkit import theory


def enumerate_groups(p, n, tau, method):
    """(positive, negative, mean) over all 2^n groups, from the targets and the exact update alone."""
    best = theory.binary(p, tau, method)
    sums = np.zeros((2, 2))  # own reward, (probability, probability * squared error)
    for group in itertools.product([0.0, 1.0], repeat=n):
        reward = np.array(group)
        chance = p ** reward.sum() * (1 - p) ** (n - reward.sum())
        ideal = np.where(reward == 1, best.log_ratio_pos, best.log_ratio_neg)
        error = (theory.leave_one_out_targets(reward, tau, method) - ideal) ** 2
        for own in (0, 1):
            sums[own] += chance / n * np.array([(reward == own).sum(), error[reward == own].sum()])
    return sums[1, 1] / sums[1, 0], sums[0, 1] / sums[0, 0], sums[:, 1].sum()


@pytest.mark.parametrize("method", theory.METHODS)
@pytest.mark.parametrize("tau", [0.01, 0.05, 1.0, 50.0])
@pytest.mark.parametrize(("p", "n"), [(0.1, 2), (0.3, 5), (0.9, 8)])
def test_equal_to_the_enumeration_of_all_groups(method, tau, p, n):
    got = theory.target_error(p, n, tau, method)
    np.testing.assert_allclose((got.positive, got.negative, got.mean), enumerate_groups(p, n, tau, method), rtol=1e-9)
    assert got.bound is None


@pytest.mark.parametrize(
    ("p", "n", "tau"), [(1e-6, 3000, 0.05), (0.01, 3000, 1e-3), (0.5, 2000, 1.0), (0.2, 500, 1e-4)]
)
def test_large_groups_have_nine_digits(p, n, tau):
    """PMD-part against the binomial sum at 40 digits; log-gammas near 1e6 leave ten digits at n = 1e5, twelve here."""
    m = n - 1
    with mp.workdps(40):
        rate, fail = mp.mpf(p), mp.exp(-1 / mp.mpf(tau))
        exact, chance = mp.mpf(0), (1 - rate) ** m
        for s in range(n):
            exact += chance * mp.log((fail + (1 - fail) * rate) / (fail + (1 - fail) * mp.mpf(s) / m)) ** 2
            chance *= mp.mpf(m - s) / (s + 1) * rate / (1 - rate)
        mean = theory.target_error(p, n, tau, "pmd-part").mean
        np.testing.assert_allclose(mean, float(exact), rtol=1e-9)


@pytest.mark.parametrize("p", [1e-6, 0.01, 0.5])
def test_a_hundred_thousand_responses(p):
    """n = 1e5: PMD-part's error is (1-p)/(p n) once n is far above 1/p; PMD-mean's is its systematic floor."""
    n, tau = 100_000, 0.05
    part, mean = theory.target_error(p, n, tau, "pmd-part"), theory.target_error(p, n, tau)
    if p >= 0.01:
        np.testing.assert_allclose(part.mean, (1 - p) / (p * n), rtol=0.01)
    x = theory.binary(p, tau).lam / tau**2
    floor = p * (x * np.exp(theory.binary(p, tau).log_ratio_pos)) ** 2
    floor += (1 - p) * (x * np.exp(theory.binary(p, tau).log_ratio_neg)) ** 2
    np.testing.assert_allclose(mean.mean, floor + p * (1 - p) / ((n - 1) * tau**2), rtol=1e-12)


def test_the_irreducible_part_is_below_the_paper_order():
    """p (1-p)^2 / tau^2 is 3.92 at p = 0.01, tau = 0.05; the exact floor is 2.68."""
    np.testing.assert_allclose(theory.target_error(0.01, 10**9, 0.05).mean, 2.68, atol=0.005)


def test_pmd_part_errs_alike_on_both_labels_and_pmd_mean_on_the_positives():
    """For PMD-part the error does not depend on the own reward; PMD-mean's sits on the positives."""
    part, mean = (theory.target_error(0.05, 16, 0.05, method) for method in theory.METHODS[::-1])
    assert part.positive == part.negative == pytest.approx(part.mean)
    assert mean.positive > 50 * mean.negative
    assert mean.mean < part.mean / 5


def test_broadcasting_over_rates_groups_and_temperatures():
    p, n, tau = np.array([0.05, 0.5])[:, None, None], np.array([2, 16, 64])[:, None], np.array([0.05, 1.0])
    for method in theory.METHODS:
        grid = theory.target_error(p, n, tau, method, delta=0.1)
        assert grid.mean.shape == grid.positive.shape == grid.bound.shape == (2, 3, 2)
        for i, j, k in itertools.product(range(2), range(3), range(2)):
            alone = theory.target_error(p[i, 0, 0], n[j, 0], tau[k], method, delta=0.1)
            np.testing.assert_allclose(grid.mean[i, j, k], alone.mean, rtol=1e-12)
            np.testing.assert_allclose(grid.bound[i, j, k], alone.bound, rtol=1e-12)


@pytest.mark.parametrize("method", theory.METHODS)
def test_never_and_always_solved_have_no_error(method):
    ends = theory.target_error([0.0, 1.0], 16, 0.05, method)
    np.testing.assert_allclose(ends.mean, 0, atol=1e-20)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ((0.1, 1, 0.05), "n is 1; expected whole numbers >= 2"),
        ((0.1, 2.5, 0.05), "n is 2.5; expected whole numbers"),
        ((-0.1, 16, 0.05), r"p is -0.1; expected pass rates in \[0, 1\]"),
        ((0.1, 16, -1.0), "tau is -1; expected finite numbers > 0"),
        ((0.1, 16, 0.05, "mean"), "unknown method 'mean'; did you mean 'pmd-mean'"),
        ((0.1, 16, 0.05, "pmd-mean", 0.0), r"delta is 0; expected failure probabilities in \(0, 1\)"),
    ],
)
def test_bad_input_is_one_sentence(arguments, sentence):
    with pytest.raises(ValueError, match=sentence):
        theory.target_error(*arguments)
