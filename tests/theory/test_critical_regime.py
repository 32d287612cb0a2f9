"""PMD-part's target error around n = 1/p: where it is the larger, where it comes down, and what "O(1)" leaves out."""

import numpy as np
import pytest

from pmdkit import theory

N = np.unique(np.geomspace(2, 4096, 16).round().astype(int))
P = np.geomspace(1e-6, 0.4, 20)[:, None]


@pytest.mark.parametrize("tau", [0.005, 0.05, 0.2, 1.0, 10.0])
def test_below_one_over_p_draws_pmd_part_has_the_larger_error(tau):
    """Exactly, in expectation, for every p and n of the grid with n p < 1; the paper says it of the bounds."""
    part, mean = (theory.target_error(P, N, tau, method).mean for method in ("pmd-part", "pmd-mean"))
    below = (P * N < 1).repeat(1, 0)
    assert below.sum() > 100
    assert (part[below] > mean[below]).all()


def test_far_above_it_pmd_part_has_the_smaller_error():
    """At n = 20/p PMD-part's is below PMD-mean's floor for tau up to 0.2; at tau = 1 the floor itself is small."""
    for p in (0.01, 0.05, 0.2):
        for tau in (0.005, 0.05, 0.2):
            n = round(20 / p)
            assert theory.target_error(p, n, tau, "pmd-part").mean < theory.target_error(p, n, tau).mean


@pytest.mark.parametrize("draws", [1, 3])
def test_a_multiple_of_one_over_p_draws_does_not_make_the_error_of_order_one(draws):
    """n = C/p: a share e^-C of groups has no success, and their error grows as 1/tau^2: the stated O(1) fails."""
    p = 0.01
    errors = []
    for tau in (0.1, 0.05, 0.02, 0.01, 0.005, 0.0025):
        error = theory.target_error(p, round(draws / p), tau, "pmd-part").mean
        assert error > 0.95 * np.exp(-draws) * (1 / tau + np.log(p)) ** 2
        errors.append(error)
    assert errors[-1] > 500 * errors[0]


def test_the_threshold_grows_with_log_one_over_tau():
    """Within twice (1-p)/(p n) from n p = 8 (tau = 0.05), 12 (tau = 0.01), 15 (0.0025): e^(-n p)/tau^2 < 1/(n p)."""
    n = np.arange(2, 4000)
    for tau, times in ((0.05, 7.9), (0.01, 11.8), (0.0025, 14.8)):
        late = theory.target_error(0.01, n, tau, "pmd-part").mean > 2 * 0.99 / (0.01 * n)
        np.testing.assert_allclose(0.01 * (n[late].max() + 1), times, rtol=0.03)


@pytest.mark.parametrize(("p", "times"), [(0.01, 44.0), (0.05, 36.9), (0.2, 28.4)])
def test_the_bound_leaves_its_ceiling_later_still(p, times):
    """Bound (b) is 1/tau^2, which always holds, until n p is about 30 to 40 (tau = delta = 0.05)."""
    n = np.arange(2, 6000)
    trivial = theory.part_bound(p, n, 0.05, 0.05) > 0.99 * 400
    np.testing.assert_allclose(p * n[~trivial].min(), times, rtol=0.02)


def test_the_refined_error_term_has_the_stated_rate_up_to_logarithms():
    """(p eps + eps^2) <= 8 L^2 (p sqrt(p/n) + 1/n^2), L = log(4n/delta): p from 1e-6 to 0.9, n from 2 to 1e9."""
    p, n = np.geomspace(1e-6, 0.9, 60)[:, None], np.unique(np.geomspace(2, 1e9, 40).round().astype(int))
    eps, logs = theory.epsilon(p, n, 0.05), np.log(4 * n / 0.05)
    ratio = (p * eps + eps**2) / (logs**2 * (p * np.sqrt(p / n) + 1 / n**2))
    assert 0.1 < ratio.max() < 8


def test_at_one_over_p_draws_the_refined_term_is_p_squared_only_up_to_large_logarithms():
    """n = 1/p, delta = 0.05: the term is 90 to 170 times p^2 / tau^2."""
    for p, factor in ((0.01, 101), (0.001, 138)):
        eps = theory.epsilon(p, round(1 / p), 0.05)
        np.testing.assert_allclose((p * eps + eps**2) / p**2, factor, rtol=0.2)


def test_the_refined_term_is_below_one_over_tau_squared_from_six_draws_on():
    """p eps + eps^2 < 1 at p = 0.01: not for n <= 5; at n = 16 by a factor of 6, and with its constants not at all."""
    n = np.arange(2, 40)
    eps = theory.epsilon(0.01, n, 0.05)
    term = 0.01 * eps + eps**2
    assert (term[n <= 5] > 1).all()
    assert (term[n >= 6] < 1).all()
    np.testing.assert_allclose(term[n == 16], 0.176, rtol=0.02)
    assert theory.refined_bound(0.01, 0.05, theory.binary(0.01, 0.05).B, 16, 0.05, 2) > 1 / 0.05**2
