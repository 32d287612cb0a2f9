"""A verifier that errs: fresh errors keep the order of arms, systematic ones do not."""

import numpy as np

from pmdkit.envs import make


def test_fresh_errors_give_the_two_accept_rates():
    bandit = make({"kind": "noisy-verifier", "false_positive": 0.05, "false_negative": 0.2})
    assert set(np.unique(bandit.reward[bandit.success == 1])) == {0.8}
    assert set(np.unique(bandit.reward[bandit.success == 0])) == {0.05}
    # 0.1 * 0.8 + 0.9 * 0.05
    np.testing.assert_allclose(bandit.mean_reward(bandit.log_policy), 0.125, rtol=1e-13)
    np.testing.assert_allclose(bandit.pass_rate(bandit.log_policy), 0.1, rtol=1e-13)


def test_systematic_errors_are_the_same_rates_over_arms_instead_of_verdicts():
    bandit = make({"kind": "noisy-verifier", "systematic": True, "contexts": 500})
    assert set(np.unique(bandit.reward)) == {0.0, 1.0}
    for truth, rate in ((0, 0.05), (1, 0.8)):
        accepted = bandit.reward[bandit.success == truth]
        assert abs(accepted.mean() - rate) < 4 * np.sqrt(rate * (1 - rate) / accepted.size)
    other = make({"kind": "noisy-verifier", "systematic": True, "contexts": 500, "seed": 1})
    assert not np.array_equal(other.reward, bandit.reward)


def test_a_perfect_verifier_rewards_the_truth():
    for systematic in (False, True):
        bandit = make({"kind": "noisy-verifier", "false_positive": 0, "false_negative": 0, "systematic": systematic})
        np.testing.assert_array_equal(bandit.reward, bandit.success)
