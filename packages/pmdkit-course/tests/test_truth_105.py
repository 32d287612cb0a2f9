"""The solutions of lesson 105 against the theory, against mpmath, and against the objective that trains."""

import mpmath
import numpy as np
import pytest
import torch

from pmdkit import theory
from pmdkit.objectives import Groups, PMDMean, PMDPart
from pmdkit_course import exercise, judge
from pmdkit_course.exercises import lesson_105 as lesson

LONE = np.where(np.arange(16) == 3, 1.0, -1.0)


def groups(reward):
    rows = torch.from_numpy(np.atleast_2d(reward))
    return Groups(rows, torch.full_like(rows, 1 / rows.shape[1]))


def test_advantages_are_those_of_the_objective_and_of_the_theory():
    reward = np.random.default_rng(0).uniform(size=(4, 6))
    found = lesson.solved_loo_advantage(reward)
    np.testing.assert_allclose(found, PMDMean(tau=0.3).advantage(groups(reward)).numpy(), atol=1e-14)
    np.testing.assert_allclose(found / 0.3, theory.leave_one_out_targets(reward, 0.3), atol=1e-13)


@pytest.mark.parametrize(("reward", "tau"), [(LONE, 0.005), (LONE, 0.001), (np.linspace(-1, 1, 5), 0.7)])
def test_targets_are_those_of_four_hundred_digits(reward, tau):
    """A lone success at tau = 0.001 has e^2000 beside e^-1000; mpmath holds all of it."""
    with mpmath.workdps(1800):
        grown = [mpmath.e ** (mpmath.mpf(float(r)) / mpmath.mpf(tau)) for r in reward]
        exact = [
            float(mpmath.mpf(float(r)) / mpmath.mpf(tau) - mpmath.log((sum(grown) - own) / (len(reward) - 1)))
            for r, own in zip(reward, grown, strict=True)
        ]
    found = lesson.solved_part_targets(reward, tau)
    np.testing.assert_allclose(found, exact, rtol=1e-12)
    np.testing.assert_allclose(found, theory.leave_one_out_targets(reward, tau, "pmd-part"), rtol=1e-12)
    np.testing.assert_allclose(found, PMDPart(tau=tau).advantage(groups(reward))[0].numpy() / tau, rtol=1e-12)


def test_the_clamp_is_that_of_the_objective_and_the_judge_names_it():
    """-log 1e-8 = 18.42 nats: an advantage of 0.092 where the formula has 2."""
    clamped = lesson.floored(LONE, 0.005)
    np.testing.assert_allclose(clamped[3] * 0.005, 0.0921, atol=1e-4)
    np.testing.assert_allclose(lesson.solved_part_targets(LONE, 0.005)[3] * 0.005, 2.0, rtol=1e-12)
    capped = PMDPart(tau=0.005, target_cap=-np.log(1e-8)).advantage(groups(LONE))[0].numpy()
    np.testing.assert_allclose(clamped, capped / 0.005, rtol=1e-9)
    assert "clamp of the authors' code" in judge(exercise("105.2"), lesson.floored).says


def test_the_own_sample_is_named():
    verdict = judge(exercise("105.1"), lambda reward: reward - reward.mean(axis=1, keepdims=True))
    assert "group mean with its own sample: divide by n - 1" in verdict.says
