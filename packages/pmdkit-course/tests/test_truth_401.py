"""The solutions of lesson 401 against the loss of the package, its explainer, and simulated races."""

import sys

import numpy as np
import pytest
import torch

from pmdkit.objectives import Batch, PMDMean, load_objective
from pmdkit_course.exercises import lesson_401 as lesson
from pmdkit_lab.explain import RATIOS
from pmdkit_lab.explain.regulariser import regulariser_curve
from pmdkit_lab.explain.solver import stationary_point
from pmdkit_lab.explain.tabular import TabularPrompt

CAPPED = """
from dataclasses import dataclass
from typing import ClassVar

import torch

from pmdkit.objectives.baselines import peer_mean, zero_absent


@dataclass(frozen=True)
class Capped:
    first_step_is_policy_gradient: ClassVar[bool] = False
    equal_groups: ClassVar[str] = "anchor"

    tau: float = 0.05
    cap: float = 3.0
    norm: str = "none"

    def advantage(self, groups):
        return zero_absent(groups.reward - peer_mean(groups), groups)

    def loss(self, batch):
        target = self.cap * torch.tanh(batch.advantage / (self.cap * batch.tau))
        return batch.tau / 2 * (target - batch.seq_log_ratio) ** 2
"""


def test_a_wide_bound_leaves_the_loss_of_the_package():
    rng = np.random.default_rng(0)
    log_ratio, advantage, tau = rng.normal(size=6), rng.uniform(-1, 1, size=6), 0.3
    rows = torch.ones(6, dtype=torch.float64)
    batch = Batch(
        logp=torch.from_numpy(log_ratio)[:, None] - 3,
        logp_old=torch.full((6, 1), -3.0, dtype=torch.float64),
        mask=torch.ones(6, 1, dtype=torch.bool),
        length=rows,
        advantage=torch.from_numpy(advantage),
        weight=rows / 6,
        tau=tau * rows,
        mass=rows / 6,
        group=torch.zeros(6, dtype=torch.long),
    )
    known = PMDMean(tau=tau).loss(batch).numpy()
    np.testing.assert_allclose(lesson.solved_bounded_loss(log_ratio, advantage, tau, 1e6), known, rtol=1e-12)


def test_the_push_is_the_residual_up_to_the_width_and_never_more():
    """The slope by the log ratio, by central differences, is the clipped residual: no jump, no kink, no zero."""
    log_ratio, advantage, tau, width, step = np.linspace(-9, 9, 401), 0.4, 0.25, 0.7, 1e-6
    above, below = (lesson.solved_bounded_loss(log_ratio + s, advantage, tau, width) for s in (step, -step))
    push = (below - above) / (2 * step)
    np.testing.assert_allclose(push, np.clip(advantage - tau * log_ratio, -width, width), atol=1e-6)


@pytest.fixture
def capped(tmp_path):
    (tmp_path / "capped_401.py").write_text(CAPPED)
    yield load_objective(f"{tmp_path}/capped_401.py:Capped", tau=0.5, cap=2.0)
    sys.modules.pop("capped_401", None)


def test_the_explainer_reads_the_same_slope_off_the_loss_alone(capped):
    """Normalisation adds x z to the target of ratio z; there f' is the solution's slope, less its value at ratio 1."""
    problem = TabularPrompt.of([0.25, 0.25, 0.25, 0.25], [0.2, 0.4, 0.6, 0.8])
    found = stationary_point(capped, problem, True)
    x = -found.multiplier / 0.5
    slope = regulariser_curve(capped, problem, found.log_ratio).slope
    known = np.isfinite(slope)
    assert known.sum() > 15
    ratio = np.exp(np.log(RATIOS[known]) + x * RATIOS[known])
    needed = lesson.solved_implied_slope(ratio, 0.5, 2.0) - lesson.solved_implied_slope(np.exp(x), 0.5, 2.0)
    np.testing.assert_allclose(slope[known], needed, atol=1e-9)


def test_beyond_the_wall_no_reward_brings_a_response_to_rest(capped):
    problem = TabularPrompt.of([0.1, 0.2, 0.7], [1.0, 0.6, 0.0])
    found = stationary_point(capped, problem, True)
    target = np.log(RATIOS) - found.multiplier / 0.5 * RATIOS
    reached = np.isfinite(regulariser_curve(capped, problem, found.log_ratio).slope)
    np.testing.assert_array_equal(reached, np.abs(target) < 2.0)
    assert 0 < reached.sum() < len(RATIOS)


def test_a_verdict_is_wrong_as_rarely_as_it_says():
    """Races between equals: among ten comparisons one or more is called in at most one case of twenty."""
    rng = np.random.default_rng(3)
    called = np.array(
        [
            any(lesson.solved_verdict(np.zeros(5), rng.normal(size=5), 10) != "undecided" for _ in range(10))
            for _ in range(150)
        ]
    )
    assert called.mean() < 0.05 + 4 * np.sqrt(0.05 * 0.95 / 150)
    alone = np.array([lesson.solved_verdict(np.zeros(5), rng.normal(size=5), 1) != "undecided" for _ in range(1000)])
    assert abs(alone.mean() - 0.05) < 4 * np.sqrt(0.05 * 0.95 / 1000)
