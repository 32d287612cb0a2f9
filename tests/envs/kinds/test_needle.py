"""The needle: p0 = good / arms, and the same problem on another reward scale."""

import numpy as np
import pytest

from pmdkit.envs import make


@pytest.mark.parametrize(("arms", "good"), [(100, 1), (10, 3), (2, 1)])
def test_the_initial_pass_rate_is_the_share_of_good_arms(arms, good):
    bandit = make({"kind": "needle", "arms": arms, "good": good, "contexts": 3})
    np.testing.assert_allclose(bandit.pass_rate(bandit.log_policy), good / arms, rtol=1e-14)


def test_plus_minus_is_the_same_problem_with_twice_the_reward_gap():
    """r' = 2 r - 1, so (r' - E r') / (2 tau) = (r - E r) / tau: every PMD update is the same at twice the tau."""
    plain, signed = make({"kind": "needle"}), make({"kind": "needle", "plus_minus": True})
    np.testing.assert_array_equal(signed.reward, 2 * plain.reward - 1)
    np.testing.assert_array_equal(signed.success, plain.success)
    assert (plain.scale, signed.scale) == ("{0, 1}", "{-1, 1}")
