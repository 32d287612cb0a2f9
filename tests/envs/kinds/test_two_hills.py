"""Two hills: the stated masses, and the lesson itself, that following a few draws too far loses the narrow hill."""

import numpy as np
import torch

from pmdkit.bandit.learner import BanditLearner
from pmdkit.envs import BanditTask, make
from pmdkit.loop import Schedule, run
from pmdkit.objectives import PMDMean

BANDIT = make({"kind": "two-hills"})


def test_the_hills_have_the_stated_shares():
    policy = np.exp(BANDIT.log_policy)
    np.testing.assert_allclose(policy[:, BANDIT.success[0] == 0.5].sum(1), 0.5, rtol=1e-14)
    narrow = policy[:, BANDIT.success[0] == 1.0].sum(1)
    np.testing.assert_allclose(narrow[[0, -1]], [0.05, 0.005], rtol=1e-14)
    np.testing.assert_allclose(narrow[1:] / narrow[:-1], 10 ** (-1 / 31), rtol=1e-12)
    # 0.5 half of the time, and the narrow hill always
    np.testing.assert_allclose(BANDIT.pass_rate(BANDIT.log_policy), 0.25 + narrow, rtol=1e-13)


def lost(passes, group):
    """Contexts that end on the wrong hill: a pass rate near 0.5, and more than 9 in 10 of the policy on that hill."""
    learner = BanditLearner(torch.tensor(BANDIT.log_policy), None, "gradient", lr=0.05, passes=passes)
    run(PMDMean(tau=0.05), learner, BanditTask(BANDIT), Schedule(steps=100, group=group))
    policy = learner.log_policy().exp().numpy()
    return policy[:, BANDIT.success[0] == 0.5].sum(1) > 0.9


def test_following_sixteen_draws_all_the_way_loses_contexts_that_the_exact_update_would_not():
    far, mild, many = lost(passes=20, group=16), lost(passes=1, group=16), lost(passes=20, group=64)
    # measured 16, 0 and 8 of 32; a binomial's standard error is at most 3
    assert far.sum() >= 10
    assert mild.sum() <= 3
    assert many.sum() <= far.sum() - 3
    # the rarer the narrow hill, the likelier it is lost
    assert far[16:].sum() > far[:16].sum()
