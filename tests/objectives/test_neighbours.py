"""The neighbours of PMD: the limits where one is another, and where each comes to rest.

tools/golden_vectors.py has their equations with gradients; test_hand_worked.py has those without a vector.
"""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.optimize import brentq

from pmdkit import theory
from pmdkit.objectives import (
    GRPO,
    GRPOKL,
    QRPO,
    RLOO,
    SAPO,
    SPPO,
    TOPR,
    AsymRE,
    Groups,
    PMDPart,
    PMDScore,
    PMDToken,
    ReinforcePP,
    credit,
    load_objective,
    response_loss,
    total,
)
from pmdkit.objectives.trust_region import keep
from pmdkit.testing.objectives import RaggedDraws, bandit, ragged_draws, same, value_and_gradient

EXACT = 1e-12  # relative: some hundred float64 terms


@pytest.fixture(params=range(3))
def it(request):
    return ragged_draws(request.param)


def test_ipo_keeps_the_tokens_whose_probability_has_hardly_moved(it):
    batch = it.batch(PMDToken())
    near = (batch.logp.exp() - batch.logp_old.exp()).abs() <= 0.05
    assert torch.equal(keep(batch, "ipo", 0.05)[batch.mask], near[batch.mask])
    assert 0 < near[batch.mask].double().mean() < 1


def full_support(reward, policy):
    return Groups(reward, policy, sampled=False)


def gradient_at(objective, groups, log_ratio):
    """By the logits, at the policy pi_old e^log_ratio over its full support, normalised."""
    logp_old = groups.mass.log()
    mask = torch.ones(logp_old.numel(), 1, dtype=torch.bool)
    batch = credit(objective, groups, logp_old.reshape(-1, 1), mask, width=1)
    logits = (logp_old + log_ratio).requires_grad_()
    value = total(objective, replace(batch, logp=logits.log_softmax(1).reshape(-1, 1)))
    return torch.autograd.grad(value, logits)[0]


@pytest.mark.parametrize("tau", [0.01, 0.3, 5.0])
def test_the_partition_of_qrpo_is_exact_for_every_distribution(tau):
    """E e^{R / tau} = tau (e^{1/tau} - 1) with graded rewards, tied ones and two; with weak ties it is above that."""
    logits, reward = bandit(0, arms=7)
    policy = logits.softmax(1)
    reward = torch.stack([reward[0], (4 * reward[1]).round() / 4, (reward[2] > 0.6).double()])
    groups = full_support(reward, policy)
    exact = (policy * (QRPO(tau=tau).advantage(groups) / tau).exp()).sum(1)
    same(exact, torch.ones(3, dtype=torch.float64), "the targets of QRPO are not a policy")
    weak = (policy * (QRPO(tau=tau, ties="weak").advantage(groups) / tau).exp()).sum(1)
    assert bool((weak > 1 + 1e-3).all())


def test_qrpo_rests_exactly_at_its_targets():
    """No residual is left: the minimum is 0, where PMD-mean's is not."""
    logits, reward = bandit(1)
    groups = full_support(reward, logits.softmax(1))
    objective = QRPO(tau=0.3)
    target = objective.advantage(groups) / 0.3
    same(gradient_at(objective, groups, target), torch.zeros_like(target), "QRPO at its targets")
    same(target, (groups.mass.log() + target).log_softmax(1) - groups.mass.log(), "the targets are normalised")


def test_qrpo_on_uniform_quantiles_is_pmd_part():
    """A reward that is its own quantile: PMD-part's sum over the arms tends to QRPO's integral, 1/A off."""
    for arms in (10, 100, 1000):
        reward = (torch.arange(arms, dtype=torch.float64)[None] + 0.5) / arms
        groups = full_support(reward, torch.full_like(reward, 1 / arms))
        gap = (QRPO(tau=0.3).advantage(groups) - PMDPart(tau=0.3).advantage(groups)).abs().max()
        assert gap < 1 / (12 * 0.3 * arms**2)  # the midpoint rule


def test_weak_ties_raise_a_group_of_failures_and_exact_ones_do_not():
    zero = torch.zeros(1, 4, dtype=torch.float64)
    groups = Groups(zero, torch.full_like(zero, 0.25))
    assert bool((QRPO(ties="weak").advantage(groups) > 0.1).all())
    assert torch.equal(QRPO().advantage(groups), zero)


def test_sppo_is_pmd_mean_on_win_rates(it):
    """Draws and full support; the mean win rate is one half, so PMD-mean's own baseline finds it."""
    logits, reward = bandit(2)
    groups = full_support((3 * reward).round(), logits.softmax(1))
    wins = SPPO().advantage(groups)
    same((groups.mass * wins).sum(1), torch.zeros(3, dtype=torch.float64), "the mean win rate is not one half")
    solved = theory.pmd_mean(groups.mass.numpy(), wins.numpy(), np.full(3, 0.2))
    slope = gradient_at(SPPO(tau=0.2), groups, torch.as_tensor(solved.log_ratio))
    same(slope, torch.zeros_like(slope), "SPPO at PMD-mean's solution")


def test_asymre_without_a_shift_is_rloo_and_with_one_adds_a_supervised_loss(it):
    value, gradient = value_and_gradient(RLOO(), it.batch(RLOO()))
    plain = AsymRE(shift=0.0, baseline="loo")
    for found, expected in zip(value_and_gradient(plain, it.batch(plain)), (value, gradient), strict=True):
        assert torch.equal(found, expected)
    own = AsymRE(shift=0.0)
    size = it.groups.reward.shape[1]
    same(value_and_gradient(own, it.batch(own))[1], gradient * (size - 1) / size, "the mean with the own draw")
    moved = AsymRE(shift=-0.3, baseline="loo")
    batch = it.batch(moved)
    same(moved.loss(batch), RLOO().loss(it.batch(RLOO())) - 0.3 * batch.seq_logp, "supervised")


def test_topr_solves_for_the_positive_part_of_the_advantage():
    """The policy pi_old A_+ / E[A_+]: no slope there."""
    logits, reward = bandit(0)
    groups = full_support(reward, logits.softmax(1))
    objective = TOPR()
    good = objective.advantage(groups).clamp_min(0)
    log_ratio = (good / (groups.mass * good).sum(1, keepdim=True)).clamp_min(1e-30).log()
    slope = gradient_at(objective, groups, log_ratio)
    same(slope, torch.zeros_like(slope), "TOPR at its solution")


def test_grpo_with_a_kl_term_of_weight_0_is_grpo_and_without_a_reference_is_anchored_at_pi_old(it):
    none = GRPOKL(kl_loss_coef=0.0)
    assert torch.equal(none.loss(it.batch(none)), GRPO().loss(it.batch(GRPO())))
    objective = GRPOKL()
    batch = it.batch(objective)
    at_old = objective.loss(replace(batch, logp_ref=None))
    assert torch.equal(at_old, objective.loss(replace(batch, logp_ref=batch.logp_old)))


BASELINES = pytest.mark.parametrize("baseline", ["batch", "group"])


def test_reinforce_pp_with_one_response_per_prompt_is_grpo_on_one_group_of_them(it):
    """The source's own case: what others answered to other prompts is all that there is to compare with."""
    column = it.groups.reward.reshape(-1, 1)
    found = ReinforcePP().advantage(Groups(column, torch.ones_like(column)))
    row = Groups(column.T, torch.full_like(column.T, 1 / column.numel()))
    same(found.T, GRPO().advantage(row), "one row of responses", atol=EXACT)
    rows = RaggedDraws(Groups(column, torch.ones_like(column)), it.logp, it.logp_old, it.logp_ref, it.mask)
    assert bool((rows.batch(ReinforcePP()).weight > 0).all())
    with pytest.raises(ValueError, match="got 1 response per prompt"):
        rows.batch(ReinforcePP(baseline="group"))


@BASELINES
@pytest.mark.parametrize("sampled", [True, False])
def test_the_advantages_of_reinforce_pp_have_mean_0_and_variance_1_under_the_weights_of_the_loss(baseline, sampled):
    """Over prompts and pi_old, or draws of which some have no verdict: one group has a single one, one has none."""
    logits, reward = bandit(3, prompts=5)
    mass = logits.softmax(1)
    if sampled:
        mass = (torch.rand(5, 5, generator=torch.Generator().manual_seed(1)) < 0.7).double()
        mass[0], mass[1] = torch.zeros(5), torch.tensor([0.0, 0.0, 1.0, 0.0, 0.0])
        mass = mass / mass.sum(1, keepdim=True).clamp_min(1)
    objective = ReinforcePP(baseline=baseline, norm="none")
    logp_old, mask = torch.full((25, 1), -1.0, dtype=torch.float64), torch.ones(25, 1, dtype=torch.bool)
    batch = credit(objective, Groups(reward, mass, sampled), logp_old, mask)
    weight = batch.weight / batch.weight.sum()
    assert (weight * batch.advantage).sum().item() == pytest.approx(0, abs=EXACT)
    assert (weight * batch.advantage**2).sum().item() == pytest.approx(1, rel=EXACT)
    assert int((batch.weight.view(5, 5) > 0).any(1).sum()) == (5 if not sampled else 4 if baseline == "batch" else 3)


@BASELINES
def test_what_a_penalty_in_the_reward_costs_is_standardised_with_it(it, baseline):
    """REINFORCE++ takes k1 off the reward before it standardises."""
    plain, penalised = (
        load_objective("reinforce-pp", baseline=baseline, **options)
        for options in ({}, {"kl_coef": 0.3, "kl_in": "reward", "kl_estimator": "k1"})
    )
    cost = torch.where(it.mask, it.logp_old - it.logp_ref, 0.0).sum(1).view(it.groups.reward.shape)
    by_hand = replace(it, groups=Groups(it.groups.reward - 0.3 * cost, it.groups.mass))
    same(it.batch(penalised).advantage, by_hand.batch(plain).advantage, "k1 in the reward")


def test_the_advantage_of_maxrl_is_the_gradient_of_log_p_cut_after_as_many_terms_as_there_are_peers():
    """log p = -sum_k (1 - p)^k / k. By enumeration of the draws; on the full support without a cut."""
    p = torch.tensor(0.3, dtype=torch.float64)
    logit = torch.log(p / (1 - p)).requires_grad_()
    logp = torch.stack([torch.nn.functional.logsigmoid(logit), torch.nn.functional.logsigmoid(-logit)])
    objective = GRPO(std="mean", norm="none")

    def step(groups, logp):
        batch = credit(objective, groups, logp.reshape(-1, 1), torch.ones(logp.numel(), 1, dtype=torch.bool))
        return -torch.autograd.grad(total(objective, batch), logit, retain_graph=True)[0]

    right = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    exact = step(Groups(right, logp.detach().exp()[None], sampled=False), logp)
    same(exact, torch.autograd.grad(logp[0], logit, retain_graph=True)[0], "d log p")
    for size in (2, 4):
        mean = torch.zeros((), dtype=torch.float64)
        for successes in range(size + 1):
            reward = (torch.arange(size) < successes).double()[None]
            chance = math.comb(size, successes) * p**successes * (1 - p) ** (size - successes)
            draws = torch.where(reward[0] == 1, logp[0], logp[1])
            mean += chance * step(Groups(reward, torch.full_like(reward, 1 / size)), draws)
        series = -sum((1 - logp[0].exp()) ** k / k for k in range(1, size))
        same(mean, torch.autograd.grad(series, logit, retain_graph=True)[0], f"{size} draws")
    silent = objective.advantage(Groups(torch.tensor([[-1.0, -1.0, 0.5]]), torch.full((1, 3), 1 / 3)))
    assert torch.equal(silent, torch.zeros(1, 3))


def test_pmd_score_of_one_token_is_pmd_mean_and_of_four_solves_every_prefix_on_its_own():
    """16 responses, 2 right, tau 0.1. By Newton on tau u + x e^u = Q at each prefix, Q the mean advantage behind it."""
    reward = torch.zeros(1, 16, dtype=torch.float64)
    reward[0, [0, 9]] = 1.0
    mass = torch.full_like(reward, 1 / 16)
    solved = torch.as_tensor(theory.pmd_mean(mass.numpy(), reward.numpy(), np.array([0.1])).log_ratio)
    slope = gradient_at(PMDScore(tau=0.1), full_support(reward, mass), solved)
    same(slope, torch.zeros_like(slope), "one token")
    assert (mass * solved.exp())[reward == 1].sum().item() == pytest.approx(0.8031, abs=5e-5)

    advantage = (reward - 2 / 16)[0].numpy()
    log_ratio, tokens = np.zeros(16), np.zeros((16, 4))
    for t in range(4):
        for prefix in range(2**t):
            below = 2 ** (4 - t)
            halves = [slice(prefix * below + b * below // 2, prefix * below + (b + 1) * below // 2) for b in (0, 1)]
            gains = [advantage[half].mean() for half in halves]

            def excess(u, gains=gains):  # the other token has e^v = 2 - e^u, and the two prices x agree
                v = math.log(2 - math.exp(u))
                return (gains[0] - 0.1 * u) / math.exp(-u) * math.exp(-2 * u) - (gains[1] - 0.1 * v) * math.exp(-v)

            u = 0.0 if gains[0] == gains[1] else brentq(excess, -20, math.log(2) - 1e-9, xtol=1e-14)
            for half, value in zip(halves, (u, math.log(2 - math.exp(u))), strict=True):
                log_ratio[half] += value
                tokens[half, t] = value
    passed = np.exp(log_ratio[[0, 9]]).sum() / 16
    assert passed == pytest.approx(0.7249, abs=5e-5)

    # the batch at that policy: no gradient along any change of a prefix's two logits
    old = torch.full((16, 4), -math.log(2), dtype=torch.float64)
    batch = credit(PMDScore(tau=0.1), full_support(reward, mass), old, torch.ones(16, 4, dtype=torch.bool))
    slopes = value_and_gradient(PMDScore(tau=0.1), replace(batch, logp=old + torch.tensor(tokens)))[1].numpy()
    for t in range(4):
        below = 2 ** (4 - t)
        for start in range(0, 16, below):
            first, second = (slopes[start + b * below // 2 :][: below // 2, t].sum() for b in (0, 1))
            chance = math.exp(tokens[start, t]) / 2
            assert first * (1 - chance) - second * chance == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize(("tau", "rests"), [(0.2, True), (0.1, False)])
def test_a_prefix_without_a_right_response_rests_under_pmd_score_only_if_tau_exceeds_the_pass_rate(tau, rests):
    """Two tokens of equal advantage -0.125, moved apart by 0.01: the slope leads back, or further away."""
    old = torch.full((2,), -math.log(2), dtype=torch.float64)
    logits = torch.tensor([0.01, 0.0], dtype=torch.float64, requires_grad=True)
    logp = logits.log_softmax(0)
    loss = 0.5 * (0.125 * logp + tau / 2 * (logp - old) ** 2).sum()
    assert (torch.autograd.grad(loss, logits)[0][0] > 0) == rests


@pytest.mark.slow
@pytest.mark.parametrize(("loss", "both"), [("pmd-mean", True), ("pmd-token", False)])
def test_without_the_band_a_ratio_with_a_square_keeps_one_of_two_equal_right_responses(loss, both):
    """Gradient flow on 16 responses of one token from logits with noise of 1e-3, tau 0.1."""
    reward = torch.zeros(1, 16, dtype=torch.float64)
    reward[0, [0, 9]] = 1.0
    groups = full_support(reward, torch.full_like(reward, 1 / 16))
    band = {"clip_low": 50.0, "clip_high": 50.0} if loss == "pmd-token" else {}
    objective = load_objective(loss, tau=0.1, norm="none", **band)
    log_ratio = torch.randn(1, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 1e-3
    for _ in range(450):
        log_ratio = log_ratio - 10 * gradient_at(objective, groups, log_ratio)
    low, high = sorted(log_ratio.softmax(1)[0, [0, 9]].tolist())
    assert gradient_at(objective, groups, log_ratio).norm() < 1e-8
    assert (high / low < 1.01) if both else (high / low > 5 and low * 16 < math.e)


def test_sapo_stays_finite_when_a_ratio_overflows():
    logp = torch.tensor([[900.0], [-900.0]], dtype=torch.float64, requires_grad=True)
    old = torch.zeros(2, 1, dtype=torch.float64)
    reward = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    response_loss(SAPO(), reward, logp, old, torch.ones(2, 1, dtype=torch.bool)).backward()
    assert torch.equal(logp.grad, torch.zeros_like(old))
