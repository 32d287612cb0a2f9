"""Leave-one-out targets and their errors: against definitions, enumeration and draws, and around n = 1/p."""

import itertools

import mpmath as mp
import numpy as np
import pytest
from scipy.stats import binom

from pmdkit import theory
from pmdkit.observe.gauge import expected_noise
from pmdkit_lab import finite_samples


def by_definition(reward, tau, method):
    out = []
    for i, own in enumerate(reward):
        peers = [mp.mpf(r) for j, r in enumerate(reward) if j != i]
        if method == "pmd-mean":
            out.append((own - mp.fsum(peers) / len(peers)) / tau)
        else:
            out.append(own / mp.mpf(tau) - mp.log(mp.fsum(mp.exp(r / tau) for r in peers) / len(peers)))
    return np.array([float(x) for x in out])


@pytest.mark.parametrize("method", theory.METHODS)
@pytest.mark.parametrize("tau", [1e-4, 0.05, 1.0, 1e4])
def test_targets_are_the_definition(method, tau):
    """One best response at small tau included, where subtracting it from a full sum would leave nothing."""
    rng = np.random.default_rng(80)
    groups = np.array([rng.random(8), (rng.random(8) < 0.5) * 1.0, [1.0, *np.zeros(7)], np.full(8, 0.3)])
    got = theory.leave_one_out_targets(groups, tau, method)
    for reward, targets in zip(groups, got, strict=True):
        with mp.workdps(60):
            np.testing.assert_allclose(targets, by_definition(reward, tau, method), rtol=1e-10, atol=1e-12 / tau)


def test_small_groups_see_little_of_the_log_partition():
    """E log Z_hat at p = 0.01, tau = 0.05: 0.56, 2.43, 7.54, 15.34 for n = 4, 16, 64, 1024; log Z = 15.39."""
    got = (0.01 + theory.anchor(0.01, 0.05, [4, 16, 64, 1024])) / 0.05
    np.testing.assert_allclose(got, [0.56, 2.43, 7.54, 15.34], atol=0.005)
    log_z = theory.pmd_part([0.01, 0.99], [1.0, 0.0], 0.05).log_z
    assert got[-1] < log_z < 15.40


# Exact target errors: enumeration of every group, high precision in large groups, and the closed form.


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
    got = theory.target_error(p, n, tau, method, delta=0.2)
    np.testing.assert_allclose((got.positive, got.negative, got.mean), enumerate_groups(p, n, tau, method), rtol=1e-9)
    bound = theory.mean_bound if method == "pmd-mean" else theory.part_bound
    assert got.bound == bound(p, n, tau, 0.2)
    assert theory.target_error(p, n, tau, method).bound is None


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


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (theory.target_error, (0.1, 1, 0.05)),
        (theory.target_error, (0.1, 2.5, 0.05)),
        (theory.target_error, (-0.1, 16, 0.05)),
        (theory.target_error, (0.1, 16, -1.0)),
        (theory.target_error, (0.1, 16, 0.05, "mean")),
        (theory.target_error, (0.1, 16, 0.05, "pmd-mean", 0.0)),
        (theory.epsilon, (0.1, 16, 1.0)),
        (theory.leave_one_out_targets, ([1.0], 0.1)),
        (theory.leave_one_out_targets, ([1.0, float("nan")], 0.1)),
        (theory.simulate_target_error, (0.1, 4, 0.1, "pmd-mean", 0)),
        (theory.anchor, (0.5, 0.1, 1)),
        (theory.anchor, (0.5, 0.1, 4, 2.0)),
        (theory.anchor, ([0.5, 0.1], [0.1] * 3, 4)),
        (theory.anchor_growth, (0.1, 0.1, 0.1, 1.0, 0)),
    ],
)
def test_bad_input_is_refused(function, arguments):
    with pytest.raises(ValueError, match=r"expected|unknown"):
        function(*arguments)


# Simulated groups against the exact errors, within four standard errors, and what the split means.


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


def test_at_the_group_size_of_the_paper():
    """n = 16, tau = 0.05: at p = 0.01 the peers of 86 % of the responses agree, and 85 % of the groups are drowned.

    Those are the groups without a success: their target error is above the mean square of the ideal log ratios, that of
    groups with one is not. At p = 0.5 hardly any target is noise.
    """
    p, n, tau = 0.01, 16, 0.05
    np.testing.assert_allclose([p**15 + (1 - p) ** 15, (1 - p) ** 16], [0.860, 0.851], atol=5e-4)
    np.testing.assert_allclose(expected_noise(p, n, tau), (1 - p) ** 16 + 16 * p * (1 - p) ** 15, rtol=1e-12)
    assert expected_noise(0.5, n, tau) < 1e-3
    best = theory.binary(p, tau, "pmd-part")
    signal = p * best.log_ratio_pos**2 + (1 - p) * best.log_ratio_neg**2
    for successes in range(4):
        reward = np.repeat([1.0, 0.0], [successes, n - successes])
        ideal = np.where(reward == 1, best.log_ratio_pos, best.log_ratio_neg)
        error = ((theory.leave_one_out_targets(reward, tau, "pmd-part") - ideal) ** 2).mean()
        assert (error > signal) == (successes == 0)


# PMD-part's target error around n = 1/p: where it is the larger, where it comes down, and what "O(1)" leaves out.

N = np.unique(np.geomspace(2, 4096, 16).round().astype(int))
P = np.geomspace(1e-6, 0.4, 20)[:, None]


@pytest.mark.parametrize("tau", [0.005, 0.05, 0.2, 1.0, 10.0])
def test_below_one_over_p_draws_pmd_part_has_the_larger_error(tau):
    """Exactly, in expectation, for every p and n of the grid with n p < 1; the paper says it of the bounds."""
    part, mean = (theory.target_error(P, N, tau, method).mean for method in ("pmd-part", "pmd-mean"))
    below = (P * N < 1).repeat(1, 0)
    assert below.sum() > 100
    assert (part[below] > mean[below]).all()


@pytest.mark.parametrize("p", [0.01, 0.001])
@pytest.mark.parametrize("tau", [0.05, 0.005, 0.0005])
def test_a_multiple_of_one_over_p_draws_makes_the_error_of_order_one_with_high_probability(p, tau):
    """n = 8/p: quantiles of the error over the binomial do not depend on tau, while the mean grows with 1/tau^2."""
    n, best = round(8 / p), theory.binary(p, tau, "pmd-part")
    successes = np.arange(60)
    reward = (np.arange(n) < successes[:, None]).astype(float)
    ideal = np.where(reward == 1, best.log_ratio_pos, best.log_ratio_neg)
    error = ((theory.leave_one_out_targets(reward, tau, "pmd-part") - ideal) ** 2).mean(1)
    order, chance = np.argsort(error), binom.pmf(successes, n, p)
    below = np.cumsum(chance[order])
    found = [error[order][np.searchsorted(below, share)] for share in (0.95, 0.99)]
    np.testing.assert_allclose(found, [0.48, 1.92], rtol=3e-3)
    assert error @ chance == pytest.approx(theory.target_error(p, n, tau, "pmd-part").mean, rel=1e-6)


@pytest.mark.parametrize("draws", [1, 3])
def test_a_multiple_of_one_over_p_draws_does_not_bound_the_mean_error(draws):
    """n = C/p: a share e^-C of groups has no success, and their error grows as 1/tau^2."""
    p = 0.01
    errors = []
    for tau in (0.1, 0.05, 0.02, 0.01, 0.005, 0.0025):
        error = theory.target_error(p, round(draws / p), tau, "pmd-part").mean
        assert error > 0.95 * np.exp(-draws) * (1 / tau + np.log(p)) ** 2
        errors.append(error)
    assert errors[-1] > 500 * errors[0]


@pytest.mark.nightly
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
    assert finite_samples.refined_bound(0.01, 0.05, theory.binary(0.01, 0.05).B, 16, 0.05, 2) > 1 / 0.05**2
