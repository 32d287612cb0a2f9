"""What a log decides, exactly: one step of mirror descent and no more, and the coverage of docs/use/offline.md."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from pmdkit.bandit.learner import BanditLearner
from pmdkit.envs import BanditTask, load, make
from pmdkit.loop import Schedule, run
from pmdkit.objectives import load_objective
from pmdkit_lab import finite_samples

PAGE = Path(__file__).parents[2] / "docs" / "use" / "offline.md"


def logged(rollouts):
    """A stream that reads the same rollouts in every step."""

    def stream(learner, task, schedule, start):
        return ((step, rollouts) for step in range(start + 1, schedule.steps + 1))

    return stream


def test_a_log_is_one_step_however_often_it_is_read():
    """Gradient steps on a log with every arm end on the exact update of the log's policy, 0.379, not on the second."""
    bandit = make(load("needle").env)
    task, objective = BanditTask(bandit), load_objective("pmd-mean", tau=0.05)
    learner = BanditLearner(torch.tensor(bandit.log_policy), update="gradient", lr=0.05)
    log = learner.rollout(task.prompts(1), None, 0)
    run(objective, learner, task, Schedule(400), stream=logged(log))
    exact = BanditLearner(torch.tensor(bandit.log_policy), update="exact")
    run(objective, exact, task, Schedule(1))
    rates = [bandit.pass_rate(one.log_policy().numpy())[0] for one in (learner, exact)]
    assert rates[0] == pytest.approx(rates[1], abs=1e-3)
    assert rates[1] == pytest.approx(0.379, abs=5e-4)


def test_a_log_without_a_right_response_teaches_nothing():
    """All rewards are 0: under PMD-mean the policy of the log is the solution, wherever gradient steps began."""
    bandit = make(load("needle").env)
    objective = load_objective("pmd-mean", tau=0.05)
    learner = BanditLearner(torch.tensor(bandit.log_policy), update="gradient", lr=0.05)
    log = learner.rollout(torch.tensor([0]), 16, 1)
    assert (log.responses > 0).all()  # arm 0 is the needle
    run(objective, learner, BanditTask(bandit), Schedule(20), stream=logged(log))
    np.testing.assert_allclose(learner.log_policy().numpy(), bandit.log_policy, atol=1e-12)


def test_the_table_of_the_page_is_the_law_of_one_step():
    cells = {name: re.search(rf"\| {name} \| (.*) \|", PAGE.read_text()).group(1).split(" | ") for name in
             ("coverage", "expected pass rate after the fit")}  # fmt: skip
    for place, n in enumerate((4, 16, 64, 256)):
        assert float(cells["coverage"][place]) == pytest.approx(1 - 0.99**n, abs=5e-4)
        gain = float(finite_samples.sampled_step(0.01, 0.05, n, "pmd-mean").gain)
        assert float(cells["expected pass rate after the fit"][place]) == pytest.approx(0.01 + gain, abs=5e-4)
