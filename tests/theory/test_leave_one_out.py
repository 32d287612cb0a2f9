"""Leave-one-out targets and log partitions, against their definitions."""

import mpmath as mp
import numpy as np
import pytest

from pmdkit import theory


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


def test_the_smallest_group():
    """With one peer both baselines are the peer's reward."""
    for method in theory.METHODS:
        np.testing.assert_allclose(theory.leave_one_out_targets([1.0, 0.25], 0.5, method), [1.5, -1.5])


def test_targets_of_pmd_mean_add_up_to_zero_and_those_of_pmd_part_do_not():
    """PMD-part's baseline is nearly the best peer: two right of sixteen at tau = 0.005 are almost pure push down."""
    reward = np.array([1.0] * 2 + [0.0] * 14)
    mean, part = (0.005 * theory.leave_one_out_targets(reward, 0.005, method) for method in theory.METHODS)
    assert abs(mean.sum()) < 1e-13
    np.testing.assert_allclose(part[:2], 0.0135, atol=1e-4)
    np.testing.assert_allclose(part[2:], -0.990, atol=1e-3)


def test_their_mean_over_draws():
    """PMD-mean's target is unbiased for Delta/tau; PMD-part's is above r/tau - log Z, by Jensen."""
    p, n, tau = 0.3, 6, 0.2
    draws = (np.random.default_rng(81).random((200_000, n)) < p) * 1.0
    for method in theory.METHODS:
        own = theory.leave_one_out_targets(draws, tau, method)[:, 0] - draws[:, 0] / tau
        expected = -p / tau if method == "pmd-mean" else -theory.expected_log_partition(p, n, tau)
        assert abs(own.mean() - expected) < 4 * own.std() / np.sqrt(len(own))


@pytest.mark.parametrize("tau", [1e-4, 1e-3, 0.05, 1.0, 1e4])
def test_expected_log_partition_is_the_sum_over_successes(tau):
    p, n = 0.2, 9
    with mp.workdps(50):
        a = mp.exp(1 / mp.mpf(tau)) - 1
        exact = mp.fsum(
            mp.binomial(n - 1, s) * mp.mpf(p) ** s * (1 - mp.mpf(p)) ** (n - 1 - s) * mp.log(1 + a * s / (n - 1))
            for s in range(n)
        )
    np.testing.assert_allclose(theory.expected_log_partition(p, n, tau), float(exact), rtol=1e-12)


def test_small_groups_see_little_of_the_log_partition():
    """E log Z_hat at p = 0.01, tau = 0.05: 0.56, 2.43, 7.54, 15.34 for n = 4, 16, 64, 1024; log Z = 15.39."""
    got = [theory.expected_log_partition(0.01, n, 0.05) for n in (4, 16, 64, 1024)]
    np.testing.assert_allclose(got, [0.56, 2.43, 7.54, 15.34], atol=0.005)
    log_z = theory.pmd_part([0.01, 0.99], [1.0, 0.0], 0.05).log_z
    assert got[-1] < log_z < 15.40


def test_bad_input_is_one_sentence():
    with pytest.raises(ValueError, match="n is 1; expected whole numbers >= 2"):
        theory.leave_one_out_targets([1.0], 0.1)
    with pytest.raises(ValueError, match="n is 1; expected whole numbers >= 2"):
        theory.expected_log_partition(0.1, 1, 0.1)
    with pytest.raises(ValueError, match="reward has a NaN"):
        theory.leave_one_out_targets([1.0, float("nan")], 0.1)
