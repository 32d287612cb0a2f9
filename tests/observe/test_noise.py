"""Groups whose peers misjudge the partition function: against targets, all groups written out, draws, and theory."""

import itertools

import numpy as np
import pytest

from pmdkit import theory
from pmdkit.observe import noise


def group_of(successes, n):
    return np.array([1.0] * successes + [0.0] * (n - successes))


@pytest.mark.parametrize("tau", [0.02, 0.2, 0.35, 0.8, 3.0])
@pytest.mark.parametrize("n", [2, 3, 5, 16])
def test_a_target_is_a_nat_from_that_of_the_smoothed_pass_rate(n, tau):
    """The leave-one-out target of each response against r/tau - log Z((S + 1/2)/(n + 1)), response by response."""
    wild = noise.misjudged(np.arange(n + 1), n, tau)
    for successes in range(n + 1):
        group = group_of(successes, n)
        log_z = np.log(1 + np.expm1(1 / tau) * (successes + 0.5) / (n + 1))
        error = theory.leave_one_out_targets(group, tau, "pmd-part") - (group / tau - log_z)
        assert wild[successes] == (np.abs(error).max() > 1), (successes, error)


def test_at_small_tau_they_hold_at_most_one_right_response():
    for n in (2, 3, 8, 16, 64, 256):
        for tau in (1e-4, 0.01, 0.1):
            np.testing.assert_array_equal(noise.misjudged(np.arange(n + 1), n, tau), np.arange(n + 1) <= 1)


def test_without_a_temperature_it_is_the_limit_of_small_ones():
    np.testing.assert_array_equal(noise.misjudged(np.arange(17), 16, np.nan), noise.misjudged(np.arange(17), 16, 1e-3))


def test_a_large_temperature_has_none():
    """log Z is at most 1/tau, and so is its error."""
    assert not noise.misjudged(np.arange(17), 16, 1.0).any()


@pytest.mark.parametrize(
    ("p", "n", "tau"), [(0.0, 3, 0.1), (0.05, 8, 0.05), (0.4, 5, 0.3), (0.9, 6, 0.02), (1, 4, 0.1)]
)
def test_expected_is_the_sum_over_all_groups_written_out(p, n, tau):
    groups = np.array(list(itertools.product((0, 1), repeat=n)))
    weight = np.prod(np.where(groups, p, 1 - p), axis=1)
    wanted = weight @ noise.misjudged(groups.sum(1), n, tau)
    np.testing.assert_allclose(noise.expected(p, n, tau), wanted, atol=1e-14)


def test_it_is_the_lower_half_of_the_groups_with_agreeing_peers():
    """At small tau: `theory.noise_share` also counts groups with at most one wrong response, which mislead little."""
    for p in (0.01, 0.1, 0.5):
        touched, mirrored = theory.noise_share(p, 16, 0.05).touched, noise.expected(1 - p, 16, 0.05)
        np.testing.assert_allclose(noise.expected(p, 16, 0.05), touched - mirrored, rtol=1e-12)


def test_draws_meet_what_is_expected():
    """40,000 groups of each of three sizes and temperatures: within 4 standard errors."""
    rng = np.random.default_rng(0)
    p, n, tau = np.array([0.03, 0.1, 0.3]), np.array([4, 16, 16]), np.array([0.05, 0.05, 0.35])
    seen = noise.misjudged(rng.binomial(n, p, (40_000, 3)), n, tau).mean(0)
    exact = noise.expected(p, n, tau)
    assert (np.abs(seen - exact) <= 4 * np.sqrt(exact * (1 - exact) / 40_000)).all()


def columns(reward, tau, passed=0.5, present=None):
    reward = np.asarray(reward, float)
    present = np.ones(reward.shape, bool) if present is None else present
    rate = (reward > passed).mean(1)
    return noise.columns(reward, present, passed, np.full(len(reward), tau), rate)


def test_the_scale_of_the_rewards_does_not_matter():
    """Rewards of +-1 at 2 tau are rewards {0, 1} at tau."""
    groups = np.stack([group_of(successes, 8) for successes in range(9)])
    for tau in (0.05, 0.4):
        for name, values in columns(groups, tau).items():
            np.testing.assert_array_equal(columns(2 * groups - 1, 2 * tau, passed=0.0)[name], values)


def test_more_than_two_rewards_have_no_answer():
    for found in columns([[0.0, 0.3, 1.0], [0.0, 0.0, 1.0]], 0.05).values():
        assert np.isnan(found).all()


def test_absent_responses_do_not_count():
    """A group of 16 with four present is a group of four; one present response has no peer."""
    reward = np.zeros((3, 16))
    reward[0, :2] = reward[1, :1] = 1
    present = np.zeros(reward.shape, bool)
    present[:2, :4] = present[2, :1] = True
    found = columns(reward, 0.05, present=present)["noise_share"]
    np.testing.assert_array_equal(found, [0.0, 1.0, np.nan])
