"""The contract suite for tasks: it passes the tasks here and catches each way to break the contract."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from pmdkit.bandit.learner import BanditLearner
from pmdkit.envs import KINDS, BanditTask, make
from pmdkit.testing.tasks import check_task

ROLLOUT = BanditLearner(torch.full((20, 8), 1 / 8).log()).rollout


class Good:
    """Prompts count up, the reward is a function of prompt and response."""

    def prompts(self, step):
        return torch.arange(3) + step

    def reward(self, rollouts):
        answers = rollouts.responses.view(len(rollouts.prompts), -1)
        return (answers % 3 == rollouts.prompts[:, None] % 3).double()


def alike(task, **options):
    check_task(task, ROLLOUT, **options)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_bandit_keeps_the_contract(kind):
    check_task(BanditTask(make({"kind": kind})))
    check_task(BanditTask(make({"kind": kind}), prompts=7, seed=3), steps=3, group=2)


def test_a_task_is_checked_on_the_rollouts_of_a_learner():
    bandit = make({"kind": "two-hills", "contexts": 4})
    check_task(BanditTask(bandit), BanditLearner(torch.tensor(bandit.log_policy)).rollout)


def test_a_good_task_passes_and_without_a_rollout_it_is_told_to_give_one():
    alike(Good())
    with pytest.raises(AssertionError, match="give rollout"):
        check_task(Good())


def broken(**methods):
    """Good with other methods."""
    return type("Broken", (Good,), methods)()


def drifting(self, step):
    self.calls = getattr(self, "calls", 0) + 1
    return torch.arange(3) + self.calls


def noisy(self, rollouts):
    self.rng = getattr(self, "rng", np.random.default_rng(0))
    return torch.from_numpy(self.rng.random(rollouts.mass.shape))


def careless(self, rollouts):
    np.random.random()
    return Good.reward(self, rollouts)


def meddling(self, rollouts):
    result = Good.reward(self, rollouts)
    rollouts.mass.mul_(0.5)
    return result


def first_only(self, rollouts):
    result = Good.reward(self, rollouts)
    result[:, 1:] = 0.0
    return result


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"prompts": lambda self, step: [1, 2]}, "prompts.1. is a list; expected a tensor"),
        ({"prompts": lambda self, step: torch.ones(3)}, "dtype torch.float32; expected torch.int64"),
        ({"prompts": lambda self, step: torch.ones(3, 1, 1, dtype=torch.long)}, "expected .P. or .P, L., at least"),
        ({"prompts": lambda self, step: torch.arange(0)}, "at least one prompt"),
        ({"prompts": lambda self, step: torch.ones(3, 0, dtype=torch.long)}, "at least one prompt"),
        ({"prompts": drifting}, "differs when it is asked for again"),
        ({"prompts": lambda self, step: torch.randint(3, (2,))}, "differs when|global random"),
        ({"reward": lambda self, r: Good.reward(self, r).flatten()}, r"reward has shape \[12\] at step 1; expected"),
        ({"reward": lambda self, r: Good.reward(self, r).long()}, "dtype torch.int64 at step 1; expected floating"),
        ({"reward": lambda self, r: Good.reward(self, r) / 0}, "NaN or infinite entry"),
        ({"reward": lambda self, r: Good.reward(self, r).requires_grad_()}, "has a gradient"),
        ({"reward": noisy}, "differs when the same rollouts are judged again"),
        ({"reward": careless}, "used a global random generator"),
        ({"reward": meddling}, "changed the rollouts' mass"),
        ({"reward": first_only}, "put in another order"),
    ],
)
def test_each_breach_is_named(methods, message):
    with pytest.raises(AssertionError, match=message):
        alike(broken(**methods))


def test_randomness_from_the_rollouts_seed_is_within_the_contract():
    def seeded(self, rollouts):
        noise = torch.from_numpy(np.random.default_rng(rollouts.seed).random(rollouts.mass.shape))
        return Good.reward(self, rollouts) + noise

    alike(broken(reward=seeded))


def test_unscored_rows_may_hold_anything():
    def absent(self, rollouts):
        return torch.where(rollouts.mass > 0, Good.reward(self, rollouts), torch.nan)

    def rollout(prompts, group, seed):
        rollouts = ROLLOUT(prompts, group, seed)
        mass = rollouts.mass.clone()
        mass[0, 0] = 0.0
        return replace(rollouts, mass=mass)

    check_task(broken(reward=absent), rollout)
