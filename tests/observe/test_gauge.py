"""Buckets of the gauge: means over prompts, and merging many steps is the same as one large step."""

import itertools

import numpy as np
import pytest

from pmdkit import theory
from pmdkit.observe import gauge


def columns(rng, count):
    return {name: rng.normal(size=count) for name in gauge.COLUMNS}


def test_a_bucket_is_the_mean_of_its_prompts():
    rate = np.array([0.0, 0.01, 0.5, 1.0])
    values = {name: np.array([1.0, 3.0, 5.0, np.nan]) for name in gauge.COLUMNS}
    low, middle, high = gauge.fill(rate, values)
    assert (low["bucket"], low["prompts"], low["pass_rate"], low["log_ratio_neg"]) == (0, 2, 0.005, 2.0)
    assert (middle["bucket"], middle["log_ratio_pos"]) == (3, 5.0)
    assert (high["bucket"], high["log_ratio_pos"]) == (5, None)
    assert not [key for entry in (low, middle, high) for key in entry if key.endswith("_prompts")]


def test_a_row_is_the_mean_over_all_prompts():
    rng = np.random.default_rng(1)
    values, rate = columns(rng, 30), rng.random(30)
    values["tau"][:] = np.nan
    row = gauge.row(rate, values)
    assert row["tau"] is None
    assert row["ess"] == pytest.approx(values["ess"].mean(), abs=1e-14)
    weights = [entry["prompts"] for entry in row["gauge"]]
    assert np.average([entry["ess"] for entry in row["gauge"]], weights=weights) == pytest.approx(row["ess"])
    assert gauge.row(None, values)["gauge"] is None


def test_merged_steps_equal_one_large_step():
    """Also where prompts lack a value: a bucket then says how many have one, and merging weighs by that."""
    rng = np.random.default_rng(0)
    rates = rng.random((4, 50))
    steps = [columns(rng, 50) for _ in range(4)]
    for step in steps:
        step["log_ratio_pos"][rng.random(50) < 0.5] = np.nan
    merged = gauge.merge(gauge.fill(rate, step) for rate, step in zip(rates, steps, strict=True))
    twice = gauge.merge([merged[:3], merged[3:]])
    whole = gauge.fill(rates.ravel(), {n: np.concatenate([s[n] for s in steps]) for n in gauge.COLUMNS})
    for found in (merged, twice):
        for got, wanted in zip(found, whole, strict=True):
            assert got.keys() == wanted.keys()
            assert got == pytest.approx(wanted, rel=1e-12)


# Groups whose peers misjudge the partition function: against targets, all groups written out, draws, and theory.


def group_of(successes, n):
    return np.array([1.0] * successes + [0.0] * (n - successes))


@pytest.mark.parametrize("tau", [0.02, 0.2, 0.35, 0.8, 3.0])
@pytest.mark.parametrize("n", [2, 3, 5, 16])
def test_a_target_is_a_nat_from_that_of_the_smoothed_pass_rate(n, tau):
    """The leave-one-out target of each response against r/tau - log Z((S + 1/2)/(n + 1)), response by response."""
    wild = gauge.misjudged(np.arange(n + 1), n, tau)
    for successes in range(n + 1):
        group = group_of(successes, n)
        log_z = np.log(1 + np.expm1(1 / tau) * (successes + 0.5) / (n + 1))
        error = theory.leave_one_out_targets(group, tau, "pmd-part") - (group / tau - log_z)
        assert wild[successes] == (np.abs(error).max() > 1), (successes, error)


def test_without_a_temperature_it_is_the_limit_of_small_ones():
    np.testing.assert_array_equal(gauge.misjudged(np.arange(17), 16, np.nan), gauge.misjudged(np.arange(17), 16, 1e-3))


@pytest.mark.parametrize(
    ("p", "n", "tau"), [(0.0, 3, 0.1), (0.05, 8, 0.05), (0.4, 5, 0.3), (0.9, 6, 0.02), (1, 4, 0.1)]
)
def test_expected_is_the_sum_over_all_groups_written_out(p, n, tau):
    groups = np.array(list(itertools.product((0, 1), repeat=n)))
    weight = np.prod(np.where(groups, p, 1 - p), axis=1)
    wanted = weight @ gauge.misjudged(groups.sum(1), n, tau)
    np.testing.assert_allclose(gauge.expected_noise(p, n, tau), wanted, atol=1e-14)


def noise_of(reward, tau, passed=0.5, present=None):
    reward = np.asarray(reward, float)
    present = np.ones(reward.shape, bool) if present is None else present
    rate = (reward > passed).mean(1)
    return gauge.noise_columns(reward, present, passed, np.full(len(reward), tau), rate)


def test_more_than_two_rewards_have_no_answer():
    for found in noise_of([[0.0, 0.3, 1.0], [0.0, 0.0, 1.0]], 0.05).values():
        assert np.isnan(found).all()


def test_absent_responses_do_not_count():
    """A group of 16 with four present is a group of four; one present response has no peer."""
    reward = np.zeros((3, 16))
    reward[0, :2] = reward[1, :1] = 1
    present = np.zeros(reward.shape, bool)
    present[:2, :4] = present[2, :1] = True
    found = noise_of(reward, 0.05, present=present)["noise_share"]
    np.testing.assert_array_equal(found, [0.0, 1.0, np.nan])
