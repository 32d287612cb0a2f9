"""Learning rates as transformers has them, and updates that are only rounding: skipped, counted, by all ranks."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import get_scheduler

from pmdkit import train
from pmdkit.llm import dynamic_sampling
from pmdkit.llm.optimizer import LRScheduler
from pmdkit.loop import Schedule
from pmdkit.process_group import ProcessGroup
from pmdkit.specs.llm import UpdateTable
from pmdkit.specs.spec import ScheduleTable

from .conftest import step_of
from .ranks import ROOT, learner

TINY = str(ROOT / "tests" / "llm" / "tiny.toml")


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine"])
def test_rates_are_those_of_transformers(kind):
    """Two ministeps of two passes over five steps, one of warm-up; a resume in the middle has the same rates."""
    schedule = ScheduleTable(steps=5, ministeps=2, passes=2, lr=0.1)
    update = UpdateTable(lr_scheduler_type=kind, warmup_steps=1)
    weight = torch.zeros(1, requires_grad=True)
    theirs = torch.optim.SGD([weight], lr=0.1)
    name = "constant_with_warmup" if kind == "constant" else kind
    scheduler = get_scheduler(name, theirs, num_warmup_steps=4, num_training_steps=20)
    wanted = []
    for _ in range(20):
        wanted.append(theirs.param_groups[0]["lr"])
        theirs.step()
        scheduler.step()
    for begin in (0, 3):
        rates = LRScheduler([0.1, 0.01], schedule, update)
        found = [rates.step(version) for version in range(begin, 5) for _ in range(4)]
        assert [fast for fast, _ in found] == wanted[4 * begin :]
        assert [slow for _, slow in found] == pytest.approx([fast / 10 for fast, _ in found])


def moved(mine, before):
    return max((a - b).abs().max().item() for a, b in zip(mine.model.parameters(), before, strict=True))


@pytest.mark.parametrize("name", ["pmd-mean", "pmd-part", "grpo", "dro", "cispo", "rebel"])
@pytest.mark.slow
def test_equal_rewards_move_nothing_and_a_single_reward_does(name):
    """At pi = pi_old with equal rewards Adam would take a step of full size out of rounding."""
    for value in (0.0, 1 / 3, 1000 / 7):
        mine = learner(ProcessGroup(), "qwen2", name, "adamw")
        before = [weight.detach().clone() for weight in mine.model.parameters()]
        reward = torch.full((3, 4), value, dtype=torch.float64)
        report = mine.update(*step_of(mine, name, reward=reward))
        assert report["skipped"] == 1
        assert moved(mine, before) == 0
    reward[1, 2] += 1e-3
    report = mine.update(*step_of(mine, name, reward=reward))
    assert report["skipped"] == 0
    assert moved(mine, before) > 0


def test_a_pull_back_to_the_old_policy_is_no_rounding():
    """Equal rewards after a step: PMD pulls back to pi_old, and that is the objective's own gradient."""
    mine = learner(ProcessGroup(), "qwen2", "pmd-mean", "adamw")
    objective, rollouts, batch = step_of(mine, "pmd-mean", reward=torch.zeros(3, 4, dtype=torch.float64))
    with torch.no_grad():
        for weight in mine.model.parameters():
            weight += 1e-4
    assert mine.update(objective, rollouts, batch)["skipped"] == 0


class Two(ProcessGroup):
    """One process of two; the other one has, or has not, a signal."""

    def __init__(self, other):
        self.answers = [other]  # the first thing that an update asks is whether there is a signal

    def any_rank(self, here):
        return here or bool(self.answers and self.answers.pop())


@pytest.mark.parametrize("other", [False, True])
def test_all_ranks_decide_together(other):
    """A rank whose own rows are rounding takes the step of all if another one has a signal."""
    mine = learner(ProcessGroup(), "qwen2", "pmd-mean", "sgd")
    mine.process_group = Two(other)
    report = mine.update(*step_of(mine, "pmd-mean", reward=torch.zeros(3, 4, dtype=torch.float64)))
    assert report["skipped"] == (0 if other else 1)


def resampled(tmp_path, name, **options):
    own = tmp_path / "own.py"
    changes = {"rollout.max_num_gen_batches": 3, "rollout.width": 6, "evaluation.problems": 4, "evaluation.every": 0}
    changes |= {"reward.grade": f"{own}:odd"}
    return train("pmd-mean", "llm", TINY, out=tmp_path / name, trust=str(own), options=changes, **options)


@pytest.mark.slow
def test_groups_of_equal_rewards_are_resampled(tmp_path):
    """Rewards that depend on the response: fewer equal groups, other prompts, counted."""
    (tmp_path / "own.py").write_text(
        "def odd(response, cut_off):\n    return float(sum(map(ord, response)) % 4 == 0)\n"
    )
    found = resampled(tmp_path, "whole", steps=2).metrics
    assert any(row["resampled_groups"] > 0 for row in found)
    assert all(row["gen_batches"] <= 3 for row in found)
    assert all(row["zero_variance_groups"] == 0 or row["gen_batches"] == 3 for row in found)
    assert all(row["dropped_tokens"] > 0 for row in found if row["resampled_groups"])


def test_no_prompt_is_asked_twice_in_a_step(monkeypatch):
    """Rewards that never differ, six problems: each round asks two that are new to the step, until none is left."""
    mine, asked = learner(ProcessGroup(), "qwen2", "pmd-mean", "adamw"), []
    real = mine.rollout

    def rollout(prompts, group, seed):
        asked.extend(prompts.tolist())
        return real(prompts % 3, group, seed)  # the learner of the tests knows three prompts

    task = SimpleNamespace(
        problems=SimpleNamespace(train=np.arange(6)), seed=0, reward=lambda rollouts: torch.zeros(rollouts.mass.shape)
    )
    monkeypatch.setattr(mine, "rollout", rollout)
    first = mine.rollout(torch.tensor([0, 1]), 4, 0)
    found = dynamic_sampling.resampled(mine, task, Schedule(1, 4), 1, first, 9)
    assert sorted(asked) == list(range(6))
    assert found.measured["gen_batches"] == 3
