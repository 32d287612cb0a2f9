"""The fast twin for two rewards is equal to the solver it stands in for, entry by entry."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit import theory
from pmdkit.theory.inputs import centred
from pmdkit.theory.lambert import solve
from pmdkit.theory.two_rewards import pairs


def draw(rng, rows, actions, spread):
    """Policies of very unequal probabilities, and which actions are right: at least one of each in every row."""
    pi = np.exp(np.maximum(-rng.exponential(1, (rows, actions)) * rng.choice(spread, (rows, 1)), -600))
    best = rng.random((rows, actions)) < rng.choice([0.02, 0.5, 0.98], (rows, 1))
    best[:, 0], best[:, 1] = True, False
    return pi / pi.sum(1, keepdims=True), best


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 40),
    st.integers(3, 60),
    st.floats(1e-4, 1e4),
    st.sampled_from([(0.0, 1.0), (-1.0, 1.0), (-3.0, -2.5), (0.25, 7.0)]),
)
def test_equal_to_the_solver(seed, rows, actions, tau, rewards):
    pi, best = draw(np.random.default_rng(seed), rows, actions, [0.1, 1, 10])
    reward = np.where(best, rewards[1], rewards[0])
    assert pairs(pi, reward) is not None
    fast = theory.pmd_mean(pi, reward, tau)
    slow, log_x = solve(pi, centred(pi, reward) / tau)
    np.testing.assert_allclose(fast.log_ratio, slow, rtol=2e-10)
    np.testing.assert_allclose(fast.probs, pi * np.exp(slow), rtol=1e-9)
    np.testing.assert_allclose(fast.lam, np.exp(log_x) * tau**2, rtol=2e-10)
    np.testing.assert_allclose(fast.probs.sum(1), 1, atol=1e-13)


@pytest.mark.parametrize("rare", [1e-12, 1e-300])
@pytest.mark.parametrize("right", [True, False])
def test_a_rare_reward_keeps_its_digits(rare, right):
    """The log-ratio of an almost sure reward is tiny beside that of the rare one; both are those of two actions."""
    pi = np.array([rare / 2, rare / 2, 1 - rare])
    reward = np.array([1.0, 1.0, 0.0] if right else [0.0, 0.0, 1.0])
    fast = theory.pmd_mean(pi, reward, 0.05)
    two = theory.pmd_mean([rare, 1 - rare], reward[1:], 0.05)
    np.testing.assert_allclose(fast.log_ratio[1:], two.log_ratio, rtol=1e-14)
    np.testing.assert_allclose(fast.lam, two.lam, rtol=1e-13)


def test_a_third_reward_in_any_row_is_seen():
    rng = np.random.default_rng(3)
    pi, best = draw(rng, 400, 300, [1])
    reward = best.astype(float)
    assert pairs(pi, reward) is not None
    for row, action in ((0, 299), (150, 7), (399, 3)):
        changed = reward.copy()
        changed[row, action] = 0.5
        assert pairs(pi, changed) is None


def test_rows_of_other_scales_after_verdicts():
    """Rewards of 0 and 1 in the first row do not decide for the rest; rows of one verdict stay as they are."""
    rng = np.random.default_rng(5)
    pi, best = draw(rng, 60, 40, [1])
    verdicts = best.astype(float)
    verdicts[7], verdicts[8] = 0.0, 1.0
    scaled = verdicts * rng.uniform(1, 3, (60, 1)) - rng.random((60, 1))
    scaled[0] = verdicts[0]
    for reward in (verdicts, scaled):
        assert pairs(pi, reward) is not None
        new = theory.pmd_mean(pi, reward, 0.05)
        slow, log_x = solve(pi, centred(pi, reward) / 0.05)
        np.testing.assert_allclose(new.log_ratio, slow, rtol=1e-11, atol=1e-13)
        np.testing.assert_allclose(new.lam, np.exp(log_x) * 0.05**2, rtol=1e-11)
        np.testing.assert_allclose(new.probs[7:9], pi[7:9], rtol=1e-12)


def test_a_reward_without_mass_and_a_row_of_one_reward():
    pi = np.array([[0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    reward = np.array([[0.0, 0.0, 1.0], [1.0, 1.0, 1.0]])
    with np.errstate(all="raise", under="ignore"):
        new = theory.pmd_mean(pi, reward, 1e-3)
    np.testing.assert_array_equal(new.log_ratio[1], 0)
    np.testing.assert_array_equal(new.probs, pi)
    np.testing.assert_array_equal(new.lam, 0)
