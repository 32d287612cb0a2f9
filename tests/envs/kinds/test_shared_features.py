"""Shared features: pass rates as stated, the shared direction right in plain contexts and wrong in traps."""

import numpy as np
import torch

from pmdkit.bandit.learner import BanditLearner
from pmdkit.envs import BanditTask, make
from pmdkit.loop import Schedule, run
from pmdkit.objectives import PMDMean


def test_pass_rates_are_the_stated_shares():
    bandit = make({"kind": "shared-features", "arms": 200, "contexts": 8, "traps": 3, "easy": 0.5, "hard": 0.02})
    shares = bandit.pass_rate(bandit.log_policy)
    # 100 and 4 of 200 arms at the ends; 0.1 = sqrt(0.5 * 0.02) in the middle of both runs
    np.testing.assert_allclose(shares[[0, 2, 4, 5, 6, 7]], [0.5, 0.1, 0.02, 0.5, 0.1, 0.02], rtol=1e-12)


def test_the_shared_direction_helps_in_plain_contexts_and_hurts_in_traps():
    """With full alignment the right arms are a half-space of one direction, its opposite in the traps."""
    bandit = make({"kind": "shared-features", "alignment": 1.0, "contexts": 10, "traps": 5, "easy": 0.5, "hard": 0.5})
    gaps = np.stack(
        [
            row[pay == 1].mean(0) - row[pay == 0].mean(0)
            for row, pay in zip(bandit.features, bandit.success, strict=True)
        ]
    )
    cosines = gaps @ gaps.T / np.outer(*(np.linalg.norm(gaps, axis=1),) * 2)
    same = np.arange(10)[:, None] // 5 == np.arange(10) // 5
    assert (cosines[same] > 0).all()
    assert (cosines[~same] < 0).all()


def test_learning_on_plain_contexts_takes_the_traps_down():
    bandit = make({"kind": "shared-features"})
    learner = BanditLearner(
        torch.tensor(bandit.log_policy), torch.tensor(bandit.features), "gradient", lr=0.05, passes=5
    )
    before = bandit.pass_rate(learner.log_policy().numpy())
    run(PMDMean(tau=0.05), learner, BanditTask(bandit), Schedule(steps=5))
    after = bandit.pass_rate(learner.log_policy().numpy())
    assert (after[:12] > before[:12]).all()
    assert (after[12:] < before[12:]).all()
