"""Entropy against reward and the sampler's push, against differences, an integrator and the theory."""

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from pmdkit import theory
from pmdkit.errors import UsageError
from pmdkit.objectives import GRPO, RLOO, AsymRE, PMDMean, PMDPart
from pmdkit_lab.explain import population_loss, stationary_point
from pmdkit_lab.explain.entropy import entropy_cost, entropy_of_batch, sampled_policy, sampler_effect
from pmdkit_lab.explain.tabular import GRADED_PROMPTS

PROBLEM = GRADED_PROMPTS["graded rewards"]
PI, R = PROBLEM.pi, PROBLEM.reward


def entropy(pi):
    return -(pi * np.log(pi)).sum()


def softmax(z):
    return np.exp(z - z.max()) / np.exp(z - z.max()).sum()


@pytest.mark.parametrize("objective", [PMDMean(0.3), PMDPart(0.3)], ids=["pmd-mean", "pmd-part"])
def test_nats_lost_for_the_reward_gained(objective):
    rest = stationary_point(objective, PROBLEM)
    cost = entropy_cost(objective, rest)
    step = population_loss(objective, PROBLEM, np.zeros(8)).logits[0]
    ends = [softmax(np.log(PI) - width * step) for width in (1e-5, -1e-5)]
    slope = -(entropy(ends[0]) - entropy(ends[1])) / ((ends[0] - ends[1]) @ R)
    assert cost.first_step == pytest.approx(slope, rel=1e-6)
    new = PI * np.exp(rest.log_ratio)
    assert (cost.gain, cost.at_rest) == pytest.approx(((new - PI) @ R, entropy(PI) - entropy(new)), abs=1e-12)
    gain = lambda t, z: (softmax(z) - PI) @ R - cost.gain  # noqa: E731
    gain.terminal = True
    way = solve_ivp(
        lambda t, z: softmax(z) * (R - softmax(z) @ R), (0, 1e4), np.log(PI), events=gain, rtol=1e-9, atol=1e-9
    )
    assert cost.on_policy == pytest.approx(entropy(PI) - entropy(softmax(way.y[:, -1])), abs=1e-4)
    if isinstance(objective, PMDPart):  # its update is a tilt
        assert cost.tilt == pytest.approx(cost.at_rest, abs=1e-8)


@pytest.mark.parametrize(
    ("objective", "c"),
    [
        (PMDPart(0.3), lambda q: float(theory.baseline_value(q, R, 0.3, 1.0) - q @ R)),
        (AsymRE(-0.1), lambda q: -0.1),
        (PMDMean(0.3), lambda q: 0.0),
        (RLOO(), lambda q: 0.0),
        (GRPO(), lambda q: 0.0),
    ],
    ids=["pmd-part", "asymre", "pmd-mean", "rloo", "grpo"],
)
def test_the_push_of_a_sampler(objective, c):
    """Where rewards say nothing only the push is left; it moves the entropy as a difference says."""
    effect = sampler_effect(objective, 0.9, 0.8)
    q = sampled_policy(PI, 0.9, 0.8)
    assert effect.c == pytest.approx(c(q), abs=1e-12)
    moved = [entropy(softmax(np.log(PI) + width * effect.c * (PI - q))) for width in (1e-4, -1e-4)]
    assert effect.entropy == pytest.approx((moved[0] - moved[1]) / 2e-4, abs=1e-8)
    assert effect.drawn == pytest.approx(PI[q > 0].sum())
    assert effect.drawn < 0.9


@pytest.mark.parametrize(("top_p", "temperature"), [(0.0, 1.0), (1.1, 1.0), (0.9, 0.0), (0.9, -1.0), (np.nan, 1.0)])
def test_a_sampler_has_a_nucleus_and_a_temperature_above_0(top_p, temperature):
    with pytest.raises(UsageError, match=f"top_p {top_p:g} and temperature {temperature:g}; expected"):
        sampler_effect(RLOO(), top_p, temperature)
    np.testing.assert_array_equal(sampled_policy([0.1] * 9 + [0.1 + 1e-9], temperature=1e-12), np.arange(10) == 9)


def test_the_first_step_of_a_batch_is_a_step_of_mirror_descent():
    """Draws that are exactly the policy: 1, 2, 3 and 4 of ten. log pi moves by the advantage."""
    pi = np.array([1, 2, 3, 4]) / 10
    draws = np.repeat(np.arange(4), [1, 2, 3, 4])
    advantage = np.array([0.7, -0.1, 0.4, -0.2])
    tilted = [pi * np.exp(w * advantage) for w in (1e-6, -1e-6)]
    wanted = (entropy(tilted[0] / tilted[0].sum()) - entropy(tilted[1] / tilted[1].sum())) / 2e-6
    logp = torch.tensor(np.log(pi)[draws])[None].repeat(2, 1)
    slope = -torch.tensor(advantage[draws])[None].repeat(2, 1) / 10 / 2  # weights 1 / prompts / draws
    assert entropy_of_batch(slope, logp) == (pytest.approx(wanted, rel=1e-6), pytest.approx(0, abs=1e-12))
    more = torch.cat([logp, torch.full((2, 1), torch.nan)], 1)
    assert entropy_of_batch(torch.nn.functional.pad(slope, (0, 1), value=5.0), more)[0] == pytest.approx(wanted)
