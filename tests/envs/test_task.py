"""The bandit as a Task: endless shuffled epochs that can be entered anywhere, and rewards that follow their seed."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pmdkit.envs import BanditTask, make
from pmdkit.testing.tasks import uniform_arms

PLAIN = make({"kind": "noisy-verifier", "contexts": 5, "arms": 6, "right": 2})


def task_of(contexts, prompts, seed=0):
    return BanditTask(make({"kind": "needle", "contexts": contexts, "arms": 2}), prompts, seed)


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


def test_the_full_support_gets_expected_rewards_and_draws_average_to_them():
    task = BanditTask(PLAIN)
    rollouts = uniform_arms(PLAIN.arms)(task.prompts(1), None, 0)
    expected = torch.from_numpy(PLAIN.reward[task.prompts(1).numpy()])
    assert torch.equal(task.reward(rollouts), expected)

    prompts = torch.arange(5).repeat(2000)
    drawn = uniform_arms(PLAIN.arms)(prompts, 6, 7)
    paid = task.reward(drawn).numpy()
    pulls = drawn.responses.view(-1, 6).numpy()
    for context, arm in np.ndindex(PLAIN.reward.shape):
        sample = paid[(prompts.numpy()[:, None] == context) & (pulls == arm)]
        chance = PLAIN.reward[context, arm]
        assert abs(sample.mean() - chance) <= 4.5 * np.sqrt(chance * (1 - chance) / len(sample))  # 30 cells


def test_drawn_rewards_are_fixed_by_the_rollouts_seed():
    task = BanditTask(PLAIN)
    rollouts = uniform_arms(PLAIN.arms)(task.prompts(1), 64, 3)
    assert torch.equal(task.reward(rollouts), task.reward(rollouts))
    assert not torch.equal(task.reward(rollouts), task.reward(replace(rollouts, seed=4)))


def test_bad_arguments_are_refused():
    with pytest.raises(ValueError, match="prompts is 0; expected an integer >= 1"):
        BanditTask(PLAIN, prompts=0)
    with pytest.raises(ValueError, match="step is 0; expected an integer >= 1"):
        BanditTask(PLAIN).prompts(0)
