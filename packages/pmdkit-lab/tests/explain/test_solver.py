"""Objectives without a minimiser: the loss really falls for ever, the plateau is one, the boundary draws."""

import numpy as np
import pytest

from pmdkit.objectives import CISPO, DAPO, GRPO, GSPO, RLOO, DrGRPO, PMDMean
from pmdkit.randomness import generator
from pmdkit_lab.explain import exact_steps, population_loss, stationary_point
from pmdkit_lab.explain.dynamics import first_step, force, push
from pmdkit_lab.explain.solver import normalised
from pmdkit_lab.explain.tabular import GRADED_PROMPTS, binary_prompts

BASE = GRADED_PROMPTS["graded rewards"]
CLIPPED = [GRPO(), DrGRPO(), DAPO(), GSPO(), GRPO(clip_low=0.1, clip_high=0.5)]


def test_rloo_falls_for_ever_along_the_advantage():
    found = stationary_point(RLOO(), BASE)
    assert found.kind == "unbounded"
    far = normalised(BASE.pi, np.outer([0.0, 1e2, 1e3, 1e6], BASE.advantage))
    loss = population_loss(RLOO(), BASE, far).loss
    np.testing.assert_allclose(loss - loss[0], -np.array([0, 1e2, 1e3, 1e6]) * (BASE.pi @ BASE.advantage**2), rtol=1e-9)
    out = normalised(BASE.pi, np.outer([1e4, 1e6], found.ray))
    low, lower = population_loss(RLOO(), BASE, out).loss
    assert (lower - low) / (1e6 - 1e4) == pytest.approx(found.slope, rel=1e-6)
    assert lower < -1e4


@pytest.mark.parametrize("objective", CLIPPED)
@pytest.mark.slow
def test_a_clipped_objective_has_a_plateau_below_everything(objective):
    found = stationary_point(objective, BASE)
    assert found.kind == "plateau"
    seen = population_loss(objective, BASE, found.log_ratio)
    assert np.abs(seen.pull).max() == 0
    advantage = BASE.advantage if objective.std == "none" else BASE.advantage / np.sqrt(BASE.pi @ BASE.advantage**2)
    bound = np.where(advantage > 0, 1 + objective.clip_high, 1 - objective.clip_low)
    assert seen.loss[0] == pytest.approx(-(BASE.pi * advantage * bound).sum(), rel=1e-12)
    policies = normalised(BASE.pi, 2 * generator(0, "policies").normal(size=(500, len(BASE.pi))))
    assert population_loss(objective, BASE, policies).loss.min() >= seen.loss[0] - 1e-12
    # anywhere past the bounds is as good: a second policy, nats away
    other = np.where(BASE.advantage > 0, 1.0, -9.0) + np.where(BASE.reward == 1, 1.0, 0.0)
    away = population_loss(objective, BASE, normalised(BASE.pi, other))
    assert away.loss[0] == pytest.approx(seen.loss[0], rel=1e-12)
    assert np.abs(away.logits).max() == 0


@pytest.mark.parametrize("objective", CLIPPED)
def test_where_a_clipped_push_ends(objective):
    pushed = force(objective)
    assert pushed.right_end == pytest.approx(np.log1p(objective.clip_high), abs=1e-9)
    assert pushed.wrong_end == pytest.approx(np.log1p(-objective.clip_low), abs=1e-9)
    assert not pushed.right_back
    assert not pushed.wrong_back


@pytest.mark.parametrize("objective", [GRPO(), DAPO(), GRPO(clip_low=0.1, clip_high=0.5)])
def test_a_clip_bounds_the_loss_and_not_the_ratio(objective):
    """One right, one wrong response: both must leave the band before the flow rests; normalisation does the rest."""
    low, high = objective.clip_low, objective.clip_high
    p = np.array([0.001, 0.01, 0.1, 0.4, 0.5, 0.6])
    found = exact_steps(objective, p)
    np.testing.assert_allclose(found.eta, np.maximum(low, high * p / (1 - p)), rtol=1e-9)
    np.testing.assert_allclose(np.exp(found.log_ratio_right), 1 + found.eta * (1 - p) / p, rtol=1e-9)
    assert np.exp(found.log_ratio_right[0]) > 50
    limit = 1 / (1 + high)
    assert exact_steps(objective, np.array([limit - 1e-3, limit + 1e-3])).rests.tolist() == [True, False]


@pytest.mark.parametrize("objective", [GRPO(), DAPO(), GSPO(), PMDMean(), DrGRPO()])
@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_the_push_is_the_slope_of_the_loss(objective, reward):
    """By differences of the loss at a response with a mass of its own, on either side of the bounds."""
    problem = binary_prompts(np.array([0.1]))
    width, place = 1e-6, 0 if reward == 1 else 1
    for s in (-1.0, -0.1, -2e-4, 2e-4, 0.1, 1.0):
        both = np.zeros((2, 2))
        both[:, place] = s + width * np.array([1, -1])
        loss = [population_loss(objective, problem, u).loss[0] for u in both]
        by_hand = -(loss[0] - loss[1]) / (2 * width) / problem.pi[0, place]
        assert push(objective, np.array([s]), reward, 0.1)[0] == pytest.approx(by_hand, rel=1e-6, abs=1e-7)


@pytest.mark.parametrize(("objective", "standardised"), [(GRPO(), True), (DrGRPO(), False), (RLOO(), False)])
def test_the_first_step_is_the_policy_gradient_over_the_spread(objective, standardised):
    first = first_step(objective)
    assert first.misfit < 1e-12
    for p, factor in first.by_pass_rate:
        assert factor == pytest.approx((p * (1 - p)) ** -0.5 if standardised else 1.0, rel=1e-9)
    spread = np.sqrt(BASE.pi @ BASE.advantage**2)
    assert first.factor == pytest.approx(1 / spread if standardised else 1.0, rel=1e-9)


@pytest.mark.parametrize(
    ("objective", "token"), [(GRPO(), 0.25), (DAPO(), 1), (DrGRPO(), 1), (GSPO(), 0.25), (PMDMean(norm="none"), 1)]
)
def test_how_much_a_token_counts(objective, token):
    assert first_step(objective).token == pytest.approx(token, rel=1e-12)


@pytest.mark.slow
def test_cispo_ends_at_a_boundary_point_that_is_linear_in_the_advantage():
    """Past the cap the weight no longer grows: a set S rests at ratio 5 A / c, c = 5 E_old[A; S], all of S above c."""
    found = stationary_point(CISPO(), BASE)
    assert found.kind == "boundary"
    ratio = np.exp(found.log_ratio)
    kept = ratio > 0
    advantage = BASE.advantage
    level = 5 * (BASE.pi * advantage)[kept].sum()
    assert kept.sum() == 3
    assert (advantage[kept] > level).all()
    assert (advantage[~kept] < level).all()
    np.testing.assert_allclose(ratio[kept], 5 * advantage[kept] / level, rtol=1e-6)
    assert not exact_steps(CISPO(), np.array([0.01, 0.5, 0.9])).rests.any()
