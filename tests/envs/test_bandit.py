"""A bandit and its Task: exact expectations by enumeration, the law of its draws, and what it refuses."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pmdkit.envs import Bandit, BanditTask, make

UNIFORM = np.log(np.full((2, 3), 1 / 3))
REWARD = np.array([[0.1, 0.5, 0.9], [0.0, 1.0, 0.3]])


def bandit(**changes):
    return Bandit(**({"name": "test", "reward": REWARD, "log_policy": UNIFORM, "success": REWARD} | changes))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "variance"),
    [
        ({}, REWARD * (1 - REWARD)),
        ({"reward": 2 * REWARD - 1, "values": (-1.0, 1.0)}, 4 * REWARD * (1 - REWARD)),
        ({"values": None, "sd": 0.7}, np.full_like(REWARD, 0.49)),
    ],
    ids=["binary", "plus-minus", "gaussian"],
)
def test_draws_have_the_stated_mean_and_variance(changes, variance):
    problem = bandit(**changes)
    contexts, arms = np.indices(REWARD.shape)
    drawn = np.stack([problem.sample_reward(contexts, arms, np.random.default_rng(seed)) for seed in range(20_000)])
    error = 4 * np.sqrt(variance / len(drawn)) + 1e-12  # four standard errors; 0 where a reward is certain
    assert (np.abs(drawn.mean(0) - problem.reward) <= error).all()
    # the fourth central moments are at most 4/3 here, which bounds the variance of a squared deviation
    assert (np.abs(drawn.var(0) - variance) <= 4 * np.sqrt(4 / 3 / len(drawn))).all()
    if problem.values is not None:
        assert set(np.unique(drawn)) == set(problem.values)


@given(st.lists(st.floats(-30, 30), min_size=4, max_size=4), st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_pass_rate_and_mean_reward_are_expectations_by_enumeration(logits, success):
    weights = [math.exp(x - max(logits)) for x in logits]
    policy = [w / sum(weights) for w in weights]
    log_policy = np.log([policy])
    problem = Bandit("test", 1 - 2 * np.array([success]), log_policy, np.array([success]), values=(-1.0, 1.0))
    expected = math.fsum(p * s for p, s in zip(policy, success, strict=True))
    assert problem.pass_rate(log_policy)[0] == pytest.approx(expected, abs=1e-14)
    assert problem.mean_reward(log_policy)[0] == pytest.approx(1 - 2 * expected, abs=1e-14)


def test_the_arrays_are_copies_that_cannot_be_written():
    reward = REWARD.copy()
    problem = bandit(reward=reward)
    reward[0, 0] = 0.7
    assert problem.reward[0, 0] == 0.1
    with pytest.raises(ValueError, match="read-only"):
        problem.reward[0, 0] = 0.7


def test_what_does_not_fit_is_refused():
    wrong = {
        "reward": (REWARD[0], np.zeros((0, 3)), REWARD + np.nan, REWARD + 0.2),
        "log_policy": (UNIFORM[:1], UNIFORM + 0.1), "success": (REWARD - 0.2,), "features": (np.zeros((2, 3)),),
        "values": ((1.0, 0.0),), "sd": (0.1, -1.0),
    }  # fmt: skip
    for name, value in ((name, value) for name, values in wrong.items() for value in values):
        with pytest.raises(ValueError, match=name):
            bandit(**{name: value})


# The bandit as a Task: endless shuffled epochs that can be entered anywhere, and rewards that follow their seed.


def task_of(contexts, prompts, seed=0):
    return BanditTask(make({"kind": "needle", "contexts": contexts, "arms": 2}), prompts, seed)


@pytest.mark.slow
@given(contexts=st.integers(1, 7), prompts=st.integers(1, 20), steps=st.integers(1, 12), seed=st.integers(0, 2**40))
def test_steps_end_to_end_are_whole_epochs_end_to_end(contexts, prompts, steps, seed):
    task = task_of(contexts, prompts, seed)
    row = torch.cat([task.prompts(step) for step in range(1, steps + 1)]).tolist()
    epochs = [row[i : i + contexts] for i in range(0, len(row), contexts)]
    assert all(sorted(epoch) == list(range(contexts)) for epoch in epochs[:-1])
    assert len(set(epochs[-1])) == len(epochs[-1])
    # the size of a step only cuts the row
    assert row == torch.cat([task_of(contexts, 1, seed).prompts(place + 1) for place in range(len(row))]).tolist()


def test_epochs_are_shuffled_afresh_and_by_the_seed():
    task = task_of(50, None)
    first, second = task.prompts(1), task.prompts(2)
    assert first.dtype == torch.int64
    assert not torch.equal(first, second)
    assert not torch.equal(first, torch.arange(50))
    assert not torch.equal(first, task_of(50, None, seed=1).prompts(1))
    assert torch.equal(task.prompts(1), first)
