"""The bounds on the target error, over all groups of the event: what holds, what does not, and by how much."""

import numpy as np
import pytest
from scipy.stats import binom

from pmdkit import theory
from pmdkit_lab import finite_samples


def groups_in_the_event(p, n, delta):
    """Numbers of successes whose leave-one-out means are all within epsilon of p."""
    limit, counts = theory.epsilon(p, n, delta), np.arange(n + 1.0)
    near_success = (counts == 0) | (np.abs((counts - 1) / (n - 1) - p) <= limit)
    near_failure = (counts == n) | (np.abs(counts / (n - 1) - p) <= limit)
    return counts[near_success & near_failure]


def group_error(successes, p, n, tau, method):
    """bar Delta^2 of groups with these numbers of successes, from peers' means and the exact update."""
    best = theory.binary(p, tau, method)

    def own(reward, ideal):
        peers = np.clip(successes - reward, 0, n - 1)
        if method == "pmd-mean":
            return (reward - peers / (n - 1)) / tau - ideal
        return reward / tau - theory.log_partition_estimate(peers, n - 1, tau) - ideal

    positive, negative = own(1, best.log_ratio_pos), own(0, best.log_ratio_neg)
    return (successes * positive**2 + (n - successes) * negative**2) / n


GRID = [
    (p, n, tau, delta)
    for p in (1e-4, 0.01, 0.05, 0.2, 0.5, 0.9)
    for n in (4, 16, 64, 1024)
    for tau in (0.02, 0.05, 0.2, 1.0)
    for delta in (0.001, 0.1)
]


def test_epsilon_event_fails_far_less_often_than_delta():
    """Exactly, over the binomial: 56 cases, never above delta, and never above 1e-5 delta."""
    for p in (1e-4, 0.001, 0.01, 0.05, 0.2, 0.5, 0.9):
        for n in (2, 4, 16, 64, 256, 1024, 4096, 16384):
            outside = np.setdiff1d(np.arange(n + 1.0), groups_in_the_event(p, n, 0.05))
            assert binom.pmf(outside, n, p).sum() <= 1e-5 * 0.05


def test_epsilon_says_nothing_at_the_group_size_of_the_paper():
    """n = 16, delta = 0.05: 0.42 at p = 0.01 and 0.81 at p = 0.5."""
    np.testing.assert_allclose(theory.epsilon([0.01, 0.5], 16, 0.05), [0.415, 0.806], atol=0.001)


def test_bound_b_holds_and_is_tight():
    worst = 0.0
    for p, n, tau, delta in GRID:
        error = group_error(groups_in_the_event(p, n, delta), p, n, tau, "pmd-part")
        worst = max(worst, (error / theory.part_bound(p, n, tau, delta)).max())
    assert 0.9 < worst <= 1 + 1e-9


def test_corrected_bound_a_holds_and_is_not_loose():
    worst = 0.0
    for p, n, tau, delta in GRID:
        error = group_error(groups_in_the_event(p, n, delta), p, n, tau, "pmd-mean")
        worst = max(worst, (error / theory.mean_bound(p, n, tau, delta)).max())
    assert 0.5 < worst <= 1


def test_bound_a_as_stated_does_not_hold():
    """One success in 1e5 at p = 2e-8: its probability, 0.002, is above delta, and it costs 250 times the bound."""
    p, n, tau, delta = 2e-8, 100_000, 0.002, 0.001
    assert 1 in groups_in_the_event(p, n, delta)
    assert n * p * (1 - p) ** (n - 1) > 1.9 * delta
    error = group_error(np.array([1.0]), p, n, tau, "pmd-mean")[0]
    np.testing.assert_allclose(error / finite_samples.mean_bound_as_stated(p, n, tau, delta), 249, rtol=0.01)
    assert error < theory.mean_bound(p, n, tau, delta)


@pytest.mark.parametrize("tau_of_p", [lambda p: 1e-3, lambda p: p / 10])
def test_no_constant_saves_bound_a_as_stated(tau_of_p):
    """With p = 2 delta / n the excess grows without end as delta falls, at small tau and at tau far below p alike."""
    excess = []
    for delta, n in ((1e-2, 10**4), (1e-3, 10**6), (1e-4, 10**8)):
        p = 2 * delta / n
        tau = tau_of_p(p)
        error = 1 / n * ((p / tau + (1 / tau - theory.binary(p, tau).log_ratio_pos)) ** 2)
        assert n * p * (1 - p) ** (n - 1) > delta
        assert 1 / (n - 1) - p <= theory.epsilon(p, n, delta)
        excess.append(error / finite_samples.mean_bound_as_stated(p, n, tau, delta))
    assert excess[0] > 10
    assert excess[1] > 5 * excess[0]
    assert excess[2] > 5 * excess[1]
