"""Identities between objectives, and minimisers that can be written down without a solver."""

from dataclasses import replace
from itertools import combinations_with_replacement
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from pmdkit import theory
from pmdkit.llm.engines.sampling import nucleus
from pmdkit.objectives import (
    DRO,
    GRPO,
    OBJECTIVES,
    REBEL,
    RLOO,
    TB,
    AsymRE,
    Chi2PO,
    FlowRL,
    Groups,
    PassRate,
    PMDBetween,
    PMDMean,
    PMDPart,
    credit,
    total,
)
from pmdkit.testing.objectives import RaggedDraws, bandit, exact_step, mean_step, ragged_draws, same, value_and_gradient


@pytest.fixture(params=range(3))
def it(request):
    return ragged_draws(request.param)


def full_support(objective, log_ratio, logits, reward, logp_ref=None):
    """Gradient with respect to the logits at pi_old e^log_ratio, normalised."""
    logp_old = logits.log_softmax(1)
    groups = Groups(reward, logp_old.exp(), sampled=False)
    mask = torch.ones(reward.numel(), 1, dtype=torch.bool)
    batch = credit(objective, groups, logp_old.reshape(-1, 1), mask, logp_ref, width=1)
    moved = (logp_old + log_ratio).requires_grad_()
    value = total(objective, replace(batch, logp=moved.log_softmax(1).reshape(-1, 1)))
    return torch.autograd.grad(value, moved)[0]


def drawn_by(pi, top_p, temperature):
    """The policy that the engine draws from."""
    q = nucleus(pi.pow(1 / temperature).view(-1, pi.shape[-1]), top_p)
    return (q / q.sum(1, keepdim=True)).view(pi.shape)


def test_pmd_mean_on_policy_is_rloo(it):
    """The first step of PMD-mean, at any tau, is RLOO's; the appendix's scale makes it twice that."""
    _, rloo = value_and_gradient(RLOO(), it.on_policy(RLOO()))
    for tau in (0.005, 0.1, 10.0):
        _, half = value_and_gradient(PMDMean(tau=tau), it.on_policy(PMDMean(tau=tau)))
        paper = PMDMean(tau=tau, scale="paper")
        same(half, rloo, "PMD-mean on-policy is not RLOO")
        same(value_and_gradient(paper, it.on_policy(paper))[1], 2 * rloo, "the paper's scale is not twice the step")


@pytest.mark.parametrize("kind", [PMDMean, PMDPart])
def test_the_paper_scale_is_twice_the_loss(kind, it):
    half, paper = kind(tau=0.3), kind(tau=0.3, scale="paper")
    value, gradient = value_and_gradient(half, it.batch(half))
    twice, twice_gradient = value_and_gradient(paper, it.batch(paper))
    same(twice, 2 * value, "value")
    same(twice_gradient, 2 * gradient, "gradient")


def test_a_tau_that_sees_the_own_draw_biases_pmd_part_but_not_pmd_mean():
    """Averaged over all draws of four: PMD-mean's first step has no tau in it, PMD-part's baseline does."""
    mean, part = PMDMean(tau=PassRate(scale=1.0)), PMDPart(tau=PassRate(scale=1.0))
    it = bandit(0, prompts=1, arms=3)
    same(mean_step(mean, *it, 4), exact_step(mean, *it), "PMD-mean")
    bias = (mean_step(part, *it, 4) - exact_step(part, *it)).abs().max() / exact_step(part, *it).abs().max()
    assert 1e-3 < bias < 0.5
    fixed = PMDPart(tau=0.5)
    same(mean_step(fixed, *it, 4), exact_step(fixed, *it), "PMD-part at a fixed tau")


def test_float32_agrees_with_float64(it):
    """As trainers use it: rewards and log-probabilities in float32; 1e-5 is their rounding over 30 tokens."""
    for name, kind in OBJECTIVES.items():
        value, gradient = value_and_gradient(kind(), it.batch(kind()))
        groups = Groups(it.groups.reward.float(), it.groups.mass.float())
        single = RaggedDraws(groups, it.logp.float(), it.logp_old.float(), it.logp_ref.float(), it.mask)
        value32, gradient32 = value_and_gradient(kind(), single.batch(kind()))
        assert gradient32.dtype == torch.float32
        torch.testing.assert_close(value32, value, atol=1e-5, rtol=1e-5, msg=name)
        torch.testing.assert_close(gradient32.double(), gradient, atol=1e-5, rtol=1e-5, msg=name)


@pytest.mark.parametrize("scale", ["half", "paper"])
@pytest.mark.parametrize("norm", ["none", "length"])
@pytest.mark.parametrize("k", [0.4, 1.0])
@pytest.mark.parametrize("sampler", [(1.0, 1.0), (0.9, 0.8)])
def test_a_higher_baseline_is_an_anti_anchor_on_the_full_support(k, norm, scale, sampler):
    """L_k = L_mean - c KL(q || pi) + const for every pi, c = V_k - E_q r; q is pi_old, or a sampler that the loss does
    not know of; lengths weigh the KL as the loss."""
    tau, logits, reward = 0.3, *bandit(0)
    old = logits.log_softmax(1)
    q = drawn_by(old.exp(), *sampler)
    c = torch.tensor(theory.baseline_value(q, reward, tau, k)) - (q * reward).sum(1)
    assert bool((c > 0.01).all())
    mask = torch.arange(5) < torch.arange(1, 6).repeat(3)[:, None]
    length = mask.sum(1).view(3, 5) if norm == "length" else 1
    higher = PMDPart(tau, norm, scale) if k == 1 else PMDBetween(k, tau, norm, scale)
    rests = []
    for spread in (0.0, 0.1, 1.0, 5.0):
        new = (old + spread * bandit(7)[0]).log_softmax(1)
        value = []
        for objective in (higher, PMDMean(tau, norm, scale=scale)):
            # the first token has all of the log-probability
            first, last = (torch.where(torch.arange(5) == 0, x.reshape(-1, 1), 0.0) for x in (old, new))
            batch = credit(objective, Groups(reward, q, sampled=False), first, mask)
            value.append(total(objective, replace(batch, logp=last)))
        divergence = (q / length * (old - new)).sum(1)  # KL(q || pi) - KL(q || pi_old)
        rests.append(value[0] - value[1] + (2 if scale == "paper" else 1) * (c * divergence).mean())
    same(torch.stack(rests), rests[0].expand(4), "the rest depends on the policy")


@pytest.mark.parametrize(
    ("objective", "k"),
    [
        *((objective, 0.0) for objective in (PMDMean(0.3), REBEL(0.3), RLOO(), GRPO(), AsymRE(-0.1))),
        (PMDBetween(0.6, 0.3), 0.6),
        (PMDPart(0.3), 1.0),
    ],
    ids=lambda x: type(x).__name__,
)
@pytest.mark.parametrize("n", [4, None])
def test_draws_from_another_policy_push_the_first_step(objective, k, n):
    """By autograd at pi_old, over q or over all groups of four draws: with c = 0 the first step leaves what is never
    drawn, and a baseline that is c too high adds c (pi - q) to descent."""
    logits, reward = (x[0] for x in bandit(0))
    reward = (reward > reward.median()).double()
    pi = logits.softmax(0)
    q = drawn_by(pi, 0.9, 0.8)
    p = q @ reward
    rows = torch.cartesian_prod(*[torch.arange(5)] * n) if n else torch.arange(5)[None]
    mass = torch.full(rows.shape, 1 / n, dtype=torch.float64) if n else q[None]
    chance = q[rows].prod(1) if n else torch.ones(1)
    leaf = logits.clone().requires_grad_()
    logp = leaf.log_softmax(0)[rows].view(-1, 1)
    groups, mask = Groups(reward[rows], mass, sampled=n is not None), torch.ones(logp.shape, dtype=torch.bool)
    batch = credit(objective, groups, logp.detach(), mask, width=1, prompts_apart=True)
    # `credit` averages over the groups; here each counts with its chance
    weight = batch.weight * chance.repeat_interleave(rows.shape[1]) * len(rows)
    (gradient,) = torch.autograd.grad(total(objective, replace(batch, logp=logp, weight=weight)), leaf)
    if isinstance(objective, AsymRE):
        c = -0.1
    else:
        c = theory.anchor(p, 0.3, n, k) if n else theory.baseline_value(q, reward, 0.3, k) - p
    plain = -gradient - torch.as_tensor(c) * (pi - q)
    assert int((q == 0).sum()) == 2
    same(plain[q == 0], 0 * q[q == 0], "what is never drawn moves")
    scale = plain @ reward / (q * (reward - p) @ reward)  # 1, but for GRPO's deviation and means with the own draw
    assert scale > 0.5
    same(plain, scale * q * (reward - p), "beside the push it is not the policy gradient under q")


@pytest.mark.parametrize(
    ("higher", "plain", "c"),
    [
        (PMDPart(0.3), PMDMean(0.3), lambda peers: 0.3 * (peers / 0.3).exp().mean().log() - peers.mean()),
        (PMDBetween(0.6, 0.3), PMDMean(0.3), lambda peers: 0.5 * (peers / 0.5).exp().mean().log() - peers.mean()),
        (AsymRE(-0.1, "loo"), RLOO(), lambda _: -0.1),  # an anchor
    ],
    ids=["pmd-part", "pmd-between", "asymre"],
)
@pytest.mark.parametrize("norm", ["none", "length"])
def test_a_higher_baseline_is_an_anti_anchor_on_draws(higher, plain, c, norm, it):
    """The same from groups, with holes in the mask and an absent response: each row has the c of its own peers."""
    higher, plain = replace(higher, norm=norm), replace(plain, norm=norm)
    mask = it.mask & (torch.arange(it.mask.shape[1]) != 1)
    absent = torch.arange(20).view(4, 5) == 11
    groups = Groups(torch.where(absent, torch.nan, it.groups.reward), torch.where(absent, 0.0, it.groups.mass))
    rests = []
    for step in (0.0, 1.0, -4.0):
        logp = it.logp_old + step * (it.logp - it.logp_old)
        moved = replace(it, groups=groups, mask=mask, logp=logp)
        rest = total(higher, moved.batch(higher)) - total(plain, moved.batch(plain))
        for row in (~absent).flatten().nonzero()[:, 0].tolist():
            prompt, own = divmod(row, 5)
            others = ~absent[prompt] & (torch.arange(5) != own)
            weight = 1 / 4 / (int(others.sum()) + 1) / (int(mask[row].sum()) if norm == "length" else 1)
            rest = rest + weight * c(groups.reward[prompt][others]) * (it.logp_old - logp)[row][mask[row]].sum()
        rests.append(rest)
    same(torch.stack(rests), rests[0].expand(3), "the rest depends on the policy")


def test_rebel_is_the_mean_over_all_ordered_pairs(it):
    """E_{i,j} (d_i - d_j)^2 / (4 tau) over each group with d = r - tau s, in value and gradient."""
    objective = REBEL(tau=0.3)
    batch = it.batch(objective)
    value, gradient = value_and_gradient(objective, batch)
    logp = it.logp.clone().requires_grad_()
    s = torch.where(it.mask, logp - it.logp_old, 0.0).sum(1).reshape(it.groups.reward.shape)
    d = it.groups.reward - 0.3 * s
    pairs = ((d[:, :, None] - d[:, None, :]) ** 2 / (4 * 0.3)).mean()
    same(value, pairs.detach(), "value")
    same(gradient, torch.autograd.grad(pairs, logp)[0], "gradient")


def test_tb_without_a_reference_is_rebel_and_with_one_moves_the_anchor(it):
    """The reference enters as a reward: r - tau log(pi_old / pi_ref), so TB is REBEL on that."""
    tb = TB(tau=0.3)
    same(tb.loss(it.on_policy(tb)), REBEL(tau=0.3).loss(it.on_policy(REBEL(tau=0.3))), "no reference")
    drift = torch.where(it.mask, it.logp_old - it.logp_ref, 0.0).sum(1).reshape(it.groups.reward.shape)
    shifted = replace(it, groups=Groups(it.groups.reward - 0.3 * drift, it.groups.mass))
    rebel = REBEL(tau=0.3)
    same(tb.loss(it.batch(tb)), rebel.loss(shifted.batch(rebel)), "with a reference")


def test_gvpo_is_rebel_and_flowrl_on_equal_lengths_is_tb_at_a_tiny_temperature(it):
    """GVPO from its definition: centred rewards against centred tau s."""
    full = replace(it, mask=torch.ones_like(it.mask), logp=it.logp.nan_to_num(), logp_old=it.logp_old.nan_to_num())
    full = replace(full, logp_ref=it.logp_ref.nan_to_num())
    reward, width = it.groups.reward, it.mask.shape[1]
    logp = full.logp.clone().requires_grad_()
    s = (logp - full.logp_old).sum(1).view(reward.shape)
    gvpo = (0.3 * (s - s.mean(1, keepdim=True)) - reward + reward.mean(1, keepdim=True)) ** 2
    _, gradient = value_and_gradient(REBEL(tau=0.3), full.batch(REBEL(tau=0.3)))
    same(0.6 * gradient, torch.autograd.grad(gvpo.mean(), logp)[0], "GVPO")
    flowrl, tb = FlowRL(std="none", weight="none"), TB(tau=1 / 15 / width)
    (_, ours), (_, theirs) = (value_and_gradient(each, full.batch(each)) for each in (flowrl, tb))
    same(width * ours, theirs, "FlowRL")


@pytest.mark.parametrize("weight", ["clipped", "ratio", "none"])
def test_flowrl_is_its_code_with_the_best_log_z_and_rests_at_a_length_bonus(it, weight):
    """w (log Z + mean log pi/ref - 15 A)^2 with log Z solved for each group; zero where pi is ref e^{15 |y| A}."""
    objective = FlowRL(weight=weight)
    batch = it.batch(objective)
    logp = batch.logp.detach().nan_to_num().requires_grad_()
    w = (logp - batch.logp_old.nan_to_num()).where(batch.mask, 0.0).sum(1).exp().detach()
    w = {"clipped": w.clamp(0.8, 1.2), "ratio": w, "none": torch.ones_like(w)}[weight]
    mean = (logp - batch.logp_ref.nan_to_num()).where(batch.mask, 0.0).sum(1) / batch.length
    loss = 0.0
    for group in range(len(it.groups.reward)):
        rows = batch.group == group
        delta = mean[rows] - 15 * batch.advantage[rows]
        share = w[rows] * batch.mass[rows]
        log_z = -(share * delta).sum() / share.sum()
        loss = loss + (batch.weight[rows] * w[rows] * (log_z + delta) ** 2).sum()
    _, gradient = value_and_gradient(objective, batch)
    same(30 * gradient, torch.autograd.grad(loss, logp)[0], "the code of the source")
    bonus = torch.where(batch.mask, (15 * batch.advantage)[:, None], 0.0)  # |y| tokens of 15 A nats
    objective = FlowRL(weight=weight if weight != "ratio" else "none")  # e^{15 |y| A} leaves no digits of a residual
    _, gradient = value_and_gradient(objective, replace(batch, logp=(batch.logp_ref + bonus).detach().requires_grad_()))
    same(gradient, torch.zeros_like(gradient), "at rest")


def test_chi2_po_without_kl_solves_the_chi2_problem_exactly():
    """k = 0: the mean is the exact normaliser of e^s - 1, and pi = pi_old (1 + Delta / tau) leaves no residual."""
    logits, reward = bandit(0)
    tau = 1.5
    policy = logits.softmax(1)
    delta = reward - (policy * reward).sum(1, keepdim=True)
    gradient = full_support(Chi2PO(tau=tau, kl_share=0.0), (1 + delta / tau).log(), logits, reward)
    same(gradient, torch.zeros_like(gradient), "k = 0")


def test_dro_with_the_soft_value_solves_the_kl_problem():
    """V = tau log Z, handed in as a learned value would be, makes the regression exact at pi_old e^{r/tau} / Z."""
    logits, reward = bandit(0)
    tau = 0.3
    log_z = (logits.softmax(1) * (reward / tau).exp()).sum(1).log()
    objective = DRO(tau=tau, value=lambda groups: tau * log_z)
    log_ratio = reward / tau - log_z[:, None]
    gradient = full_support(objective, log_ratio, logits, reward)
    same(gradient, torch.zeros_like(gradient), "DRO with tau log Z")


def test_dro_learns_from_a_single_draw():
    """Reward 1 against a value of 0.25: advantage 0.75, at a weight of one prompt."""
    groups = Groups(torch.ones(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64))
    objective = DRO(value=0.25)
    batch = credit(objective, groups, torch.tensor([[-1.0]], dtype=torch.float64), torch.ones(1, 1, dtype=torch.bool))
    _, gradient = value_and_gradient(objective, batch)
    assert gradient.item() == pytest.approx(-0.75, abs=1e-12)


def test_equal_rewards_have_advantage_exactly_zero():
    """0.1 is no binary fraction: its mean over three rounds, and so does a std around that mean."""
    for dtype in (torch.float32, torch.float64):
        reward = torch.full((2, 3), 0.1, dtype=dtype)
        groups = Groups(reward, torch.full_like(reward, 1 / 3))
        for name, kind in OBJECTIVES.items():
            # the first two have a log of a sum of exponentials; asymre moves its baseline on purpose
            if name not in ("pmd-part", "pmd-between", "asymre"):
                assert bool((kind().advantage(groups) == 0).all()), name


def test_grpo_standardises_differences_of_any_size():
    """Rewards that differ by 1e-200, or sit on an offset of 1e6 in float32, have the advantages of 1, 0, 0."""
    plain = GRPO().advantage(Groups(torch.tensor([[1.0, 0.0, 0.0]]).double(), torch.full((1, 3), 1 / 3).double()))
    tiny = torch.tensor([[1e-200, 0.0, 0.0]], dtype=torch.float64)
    same(GRPO().advantage(Groups(tiny, torch.full_like(tiny, 1 / 3))), plain, "tiny")
    offset = torch.tensor([[1e6 + 1, 1e6, 1e6]], dtype=torch.float32)
    found = GRPO().advantage(Groups(offset, torch.full_like(offset, 1 / 3)))
    torch.testing.assert_close(found.double(), plain, atol=1e-6, rtol=0)  # float32


def test_with_one_ministep_pmd_part_is_pmd_mean_with_more_noise():
    """Over all groups of 16: one mean gradient, and at a small tau several times the variance. A baseline that is too
    high by c, and scatters no more than the mean, has most of that already."""
    pi, reward, tau, n = torch.tensor([0.1, 0.2, 0.3, 0.4]).double(), torch.tensor([1.0, 0, 0, 0]).double(), 0.05, 16
    draws = torch.tensor(list(combinations_with_replacement(range(4), n)))  # [groups, n], in any order
    times = torch.nn.functional.one_hot(draws).sum(1).double()  # [groups, arms]
    chance = (torch.lgamma(torch.tensor(n + 1.0).double()) - torch.lgamma(times + 1).sum(1) + times @ pi.log()).exp()
    score = torch.eye(4).double()[draws] - pi
    groups = Groups(reward[draws], torch.full(draws.shape, 1 / n).double(), sampled=True)
    mean, part = (OBJECTIVES[name](tau=tau).advantage(groups) for name in ("pmd-mean", "pmd-part"))
    variance = []
    for advantage in (mean, part, mean - float(theory.anchor(0.1, tau, n))):
        gradient = (advantage[..., None] * score).mean(1)
        torch.testing.assert_close(chance @ gradient, pi * (reward - pi @ reward))  # the policy gradient
        variance.append(float(chance @ ((gradient - chance @ gradient) ** 2).sum(1)))
    assert variance[1] > 4.6 * variance[0]
    assert variance[2] - variance[0] > 0.6 * (variance[1] - variance[0])
    assert variance[1] / variance[0] == pytest.approx(noise(0.1, n, tau, np.array([0.2, 0.3, 0.4])), rel=1e-6)
    page = (Path(__file__).parents[2] / "docs/explore/anchor/index.md").read_text(encoding="utf-8")
    for tau, words in ((0.05, "{:.2f} times PMD-mean's if there is one"), (0.5, "it is {:.2f}, 1.2 and 1.5 times")):
        assert words.format(noise(0.1, n, tau, np.array([0.9]))) in page
        assert noise(0.1, n, tau, np.full(400, 0.9 / 400)) == pytest.approx(8.2 if tau < 0.1 else 1.5, rel=0.01)


@pytest.mark.parametrize(("tau", "ratios"), [(0.1, (40.0, 22.3)), (0.5, (5.66, 5.66))])
def test_a_solved_batch_has_equal_ratios_above_a_threshold_in_tau_only(tau, ratios):
    """docs/use/distinct-answers.md: two equally likely right answers, drawn twice and once, and 13 wrong ones."""
    old = torch.tensor([0.125 / 8] * 8 + [0.875 / 56] * 56).double().log()
    drawn = torch.tensor([0, 0, 1, *range(20, 33)])
    groups = Groups((drawn < 8).double()[None], torch.full((1, 16), 1 / 16).double())
    objective = PMDMean(tau=tau, norm="none")
    batch = credit(objective, groups, old[drawn][:, None], torch.ones(16, 1, dtype=torch.bool))
    logits = old.clone().requires_grad_()
    options = {"max_iter": 600, "tolerance_grad": 1e-13, "tolerance_change": 1e-15, "line_search_fn": "strong_wolfe"}
    optimizer = torch.optim.LBFGS([logits], lr=1, **options)

    def closure():
        optimizer.zero_grad()
        loss = total(objective, replace(batch, logp=logits.log_softmax(0)[drawn][:, None]))
        loss.backward()
        return loss

    optimizer.step(closure)
    assert (logits.log_softmax(0) - old).exp()[:2].tolist() == pytest.approx(ratios, rel=1e-2)


def noise(p, n, tau, wrong):
    """PMD-part's variance of the first gradient over PMD-mean's, given the number of right draws: any wrong answers."""
    k, pi, found = np.arange(n + 1), np.array([p, *wrong]), []
    log_mean = tau * np.log1p(np.clip(k - np.array([[1], [0]]), 0, n - 1) * np.expm1(1 / tau) / (n - 1))
    for good, bad in ((1 - (k - 1) / (n - 1), -k / (n - 1)), (1 - log_mean[0], -log_mean[1])):
        share = np.outer(bad * (n - k), wrong / (1 - p))  # of the wrong answers, in the mean
        mean = np.column_stack([good * k, share]) - np.outer(good * k + bad * (n - k), pi)
        scatter = bad**2 * (n - k) * (wrong / (1 - p) * (1 - wrong / (1 - p))).sum()
        chance = stats.binom.pmf(k, n, p)
        found.append(chance @ ((mean**2).sum(1) + scatter) - ((chance @ mean) ** 2).sum())
    return found[1] / found[0]
