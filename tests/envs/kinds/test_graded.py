"""Grades: the hand-worked limit of the docstring, and exponents that mirror each other."""

import numpy as np
import pytest

from pmdkit.envs import make


def test_the_small_tau_limit_of_pmd_mean_worked_by_hand():
    bandit = make({"kind": "graded"})
    reward, policy = bandit.reward[0], np.exp(bandit.log_policy[0])
    above = np.maximum(reward - policy @ reward, 0)
    limit = policy * above / (policy @ above)
    np.testing.assert_allclose(limit, np.array([0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5]) / 15, atol=1e-15)
    assert limit @ reward == pytest.approx(13 / 15, abs=1e-14)


def test_contexts_go_from_easy_to_hard_and_mirror_each_other():
    bandit = make({"kind": "graded", "contexts": 5, "hardness": 4.0})
    powers = np.log(bandit.reward[:, 5]) / np.log(0.5)
    np.testing.assert_allclose(powers, [1 / 4, 1 / 2, 1, 2, 4], rtol=1e-12)
    assert (np.diff(bandit.mean_reward(bandit.log_policy)) < 0).all()


def test_noise_moves_the_draw_and_not_the_expectation():
    quiet, loud = make({"kind": "graded"}), make({"kind": "graded", "sd": 0.3})
    np.testing.assert_array_equal(quiet.reward, loud.reward)
    arms = np.arange(11)
    np.testing.assert_array_equal(quiet.draw(0 * arms, arms, np.random.default_rng(0)), quiet.reward[0])
    assert (loud.draw(0 * arms, arms, np.random.default_rng(0)) != loud.reward[0]).all()
