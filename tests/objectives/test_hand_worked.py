"""Rows small enough to work out on paper; the arithmetic stands beside each number."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from pmdkit.objectives import (
    BAPO,
    CISPO,
    DAPO,
    DRO,
    GRPO,
    GRPOKL,
    GSPO,
    REBEL,
    REC,
    RLOO,
    TB,
    Chi2PO,
    DrGRPO,
    Groups,
    PMDMean,
    PMDPart,
    credit,
)

EXACT = {"atol": 1e-12, "rtol": 0}


def draws(*rewards):
    reward = torch.tensor(rewards, dtype=torch.float64)
    return Groups(reward, torch.full_like(reward, 1 / reward.shape[1]))


def row(*values):
    return torch.tensor([values], dtype=torch.float64)


@pytest.mark.parametrize(
    ("objective", "expected"),
    [
        # rewards 1, 0, 0. Peers of the first: (0 + 0) / 2 = 0; of the others: (1 + 0) / 2.
        (PMDMean(), row(1.0, -0.5, -0.5)),
        (RLOO(), row(1.0, -0.5, -0.5)),
        (Chi2PO(), row(1.0, -0.5, -0.5)),
        (DRO(), row(1.0, -0.5, -0.5)),
        (DRO(value=0.25), row(0.75, -0.25, -0.25)),
        # mean 1/3
        (PMDMean(baseline="mean"), row(2 / 3, -1 / 3, -1 / 3)),
        (REBEL(), row(2 / 3, -1 / 3, -1 / 3)),
        (TB(), row(2 / 3, -1 / 3, -1 / 3)),
        (DrGRPO(), row(2 / 3, -1 / 3, -1 / 3)),
        # population variance 1/3 * 2/3 = 2/9, std sqrt(2)/3: 2/3 / (sqrt(2)/3) = sqrt(2)
        (GRPO(), row(2**0.5, -(2**-0.5), -(2**-0.5))),
        (DAPO(), row(2**0.5, -(2**-0.5), -(2**-0.5))),
        (GSPO(), row(2**0.5, -(2**-0.5), -(2**-0.5))),
        (CISPO(), row(2**0.5, -(2**-0.5), -(2**-0.5))),
        # sample variance (4/9 + 1/9 + 1/9) / 2 = 1/3, std 1/sqrt(3)
        (GRPO(std="sample"), row(2 / 3**0.5, -1 / 3**0.5, -1 / 3**0.5)),
        # tau 1: log mean exp of the peers is log((1 + 1) / 2) = 0, and log((e + 1) / 2) for the others
        (PMDPart(tau=1.0), row(1.0, -math.log((math.e + 1) / 2), -math.log((math.e + 1) / 2))),
    ],
    ids=lambda value: repr(value) if not isinstance(value, torch.Tensor) else "",
)
def test_advantages_of_one_success_in_three(objective, expected):
    torch.testing.assert_close(objective.advantage(draws([1.0, 0.0, 0.0])), expected, **EXACT)


def test_the_two_losses_of_the_paper_option_by_option():
    """Rewards 1, 0, 0 at tau 0.5; a right response with log ratio 0.3 has residual A - 0.15.

    PMD-part: A = 1 with peers of 0, and 0 - 0.5 log((e^2 + 1) / 2) for the others; a cap of 1.5 nats on targets holds
    log Z at (1 - 0.75) / 0.5 = 0.5 at least, so A = 1 - 0.25.
    """
    groups, ratio = draws([1.0, 0.0, 0.0]), torch.tensor([0.3, 0.0, 0.0], dtype=torch.float64)
    failure = -0.5 * math.log((math.e**2 + 1) / 2)
    wanted = {
        PMDMean(tau=0.5): (row(1.0, -0.5, -0.5), 2, True, True),
        PMDMean(tau=0.5, scale="paper"): (row(1.0, -0.5, -0.5), 1, True, False),
        PMDMean(tau=0.5, baseline="mean"): (row(2 / 3, -1 / 3, -1 / 3), 2, False, True),
        PMDPart(tau=0.5): (row(1.0, failure, failure), 2, True, True),
        PMDPart(tau=0.5, scale="paper"): (row(1.0, failure, failure), 1, True, False),
        PMDPart(tau=0.5, target_cap=1.5): (row(0.75, failure, failure), 2, False, True),
    }
    for objective, (advantage, divisor, unbiased, gradient) in wanted.items():
        torch.testing.assert_close(objective.advantage(groups), advantage, **EXACT)
        batch = SimpleNamespace(advantage=advantage[0], tau=torch.tensor([0.5]), seq_log_ratio=ratio)
        residual = advantage[0] - 0.5 * ratio
        torch.testing.assert_close(objective.loss(batch), residual**2 / (0.5 * divisor), **EXACT)
        assert (objective.unbiased, objective.first_step_is_policy_gradient) == (unbiased, gradient)


def test_one_success_in_sixteen():
    """Rewards +-1, tau 0.005. The other 15 are -1, so their log mean exp is -1 / tau and A = 1 + 1 = 2.

    The cap holds log Z at 1 / tau - 18.42, so A = 18.42 tau = 0.0921. A failure has 14 failures and the success as
    peers: log Z = 1 / tau - log 15 up to e^-400, and A = -2 + tau log 15.
    """
    groups = draws([1.0] + 15 * [-1.0])
    exact, capped = PMDPart(tau=0.005), PMDPart(tau=0.005, target_cap=18.42)
    failure = -2 + 0.005 * math.log(15)
    torch.testing.assert_close(exact.advantage(groups), row(2.0, *15 * [failure]), **EXACT)
    torch.testing.assert_close(capped.advantage(groups), row(0.0921, *15 * [failure]), **EXACT)
    # 16 / 15 * (1 + 14/16) = 2 for PMD-mean, and sqrt(15) for GRPO, or sqrt(15 * 15 / 16) by the sample std
    assert PMDMean().advantage(groups)[0, 0].item() == pytest.approx(2.0, abs=1e-12)
    assert GRPO().advantage(groups)[0, 0].item() == pytest.approx(15**0.5, abs=1e-12)
    assert GRPO(std="sample").advantage(groups)[0, 0].item() == pytest.approx(15 / 4, abs=1e-12)


def two_rows(objective, log_ratios, reward=(1.0, 0.0)):
    """Two responses of 1 and 2 tokens; loss values at given log ratios per token."""
    mask = torch.tensor([[True, False], [True, True]])
    logp_old = torch.tensor([[-1.0, 0.0], [-2.0, -0.5]], dtype=torch.float64)
    batch = credit(objective, draws(list(reward)), logp_old, mask, width=4)
    return replace(batch, logp=logp_old + torch.tensor(log_ratios, dtype=torch.float64))


def test_clips_by_hand():
    """A = +-1 (population std 1/2). Ratios 1.5 | 0.5, 1.5: the first is cut at 1.2; for A < 0 the second counts as 0.8.

    The third, 1.5 at A < 0, is not cut: GRPO is silent where a step went far in the right direction only.
    """
    ratios = [[math.log(1.5), 0.0], [math.log(0.5), math.log(1.5)]]
    expected = torch.tensor([[-1.2, 0.0], [0.8, 1.5]], dtype=torch.float64)
    torch.testing.assert_close(GRPO().loss(two_rows(GRPO(), ratios)), expected, **EXACT)
    # sequence ratio of the second row: sqrt(0.75) = 0.866, inside the band of 0.2
    wide = GSPO(clip_low=0.2, clip_high=0.2)
    expected = torch.tensor([-1.2, 0.75**0.5], dtype=torch.float64)
    torch.testing.assert_close(wide.loss(two_rows(wide, ratios)), expected, **EXACT)
    # the derivative of a mean log ratio has the length in it already
    assert [GSPO(norm=norm).first_step_is_policy_gradient for norm in ("none", "length")] == [True, False]
    # CISPO: weight times A times logp, with logp = logp_old + log ratio; weights 1.2, 0.5 (open below), 1.2
    cispo = CISPO(clip_high=0.2)
    first, second, third = -1 + math.log(1.5), -2 + math.log(0.5), -0.5 + math.log(1.5)
    expected = torch.tensor([[-1.2 * first, 0.0], [0.5 * second, 1.2 * third]], dtype=torch.float64)
    batch = two_rows(cispo, ratios)
    logp = batch.logp.requires_grad_()
    loss = cispo.loss(batch)
    torch.testing.assert_close(loss.detach(), expected, **EXACT)
    (slope,) = torch.autograd.grad(loss.sum(), logp)  # the weights are held fixed
    torch.testing.assert_close(slope, torch.tensor([[-1.2, 0.0], [0.5, 1.2]], dtype=torch.float64), **EXACT)
    # DAPO clips at 1.28; the length rules of both are their own, and Dr. GRPO's advantages are +-1/2
    assert DAPO().loss(two_rows(DAPO(), ratios))[0, 0].item() == pytest.approx(-1.28, abs=1e-12)
    assert DrGRPO().loss(two_rows(DrGRPO(), ratios))[1].tolist() == pytest.approx([0.4, 0.75], abs=1e-12)
    assert (GRPO().norm, DAPO().norm, DrGRPO().norm) == ("length", "tokens", "max")


@pytest.mark.parametrize(("balance", "expected"), [(0.6, [-1.1, 1.0, 0.7]), (0.7, [-1.35, 1.0, 0.9])])
def test_bapo_by_hand(balance, expected):
    """A = +-1, ratios 1.4 | 1, 0.7. The gain min(1.4, h) must reach the balance times the loss 1 + max(0.7, l).

    At l, h = 0.6, 1.1: 1.1 >= 0.6 * 1.7, but not 0.7 * 1.7. There l rises to its end, 0.9, and h to the first of 1.15,
    1.2, ... with h >= 0.7 * 1.9: 1.35.
    """
    objective = BAPO(clip_high=0.1, clip_low_least=0.1, clip_high_most=0.5, balance=balance)
    loss = objective.loss(two_rows(objective, [[math.log(1.4), 0.0], [0.0, math.log(0.7)]]))
    assert [loss[0, 0].item(), *loss[1].tolist()] == pytest.approx(expected, abs=1e-12)


def test_a_band_and_a_kl_term_by_hand():
    """Ratios 1.4 | 0.5, 1.6. A two-sided band of [0.8, 1.5] leaves A times the ratio of the first token alone.

    The KL term is 0.04 times s^2 / 2, or e^-s - 1 + s, of s = 0.2 to the reference on each of three tokens.
    """
    ratios = [[math.log(1.4), 0.0], [math.log(0.5), math.log(1.6)]]
    band = REC(clip_mode="two-side", importance_sampling=True, clip_low=0.2, clip_high=0.5)
    batch = two_rows(band, ratios)
    batch.logp.requires_grad_()
    (slope,) = torch.autograd.grad(band.loss(batch).sum(), batch.logp)
    torch.testing.assert_close(slope, torch.tensor([[-0.7, 0.0], [0.0, 0.0]], dtype=torch.float64), **EXACT)
    for kind, pull in (("k2", 0.2**2 / 2), ("k3", math.exp(-0.2) - 1 + 0.2)):
        objective = GRPOKL(kl_loss_type=kind)
        batch = two_rows(objective, ratios)
        added = objective.loss(replace(batch, logp_ref=batch.logp - 0.2)) - GRPO().loss(batch)
        expected = 0.04 * pull * batch.mask.double()
        torch.testing.assert_close(added, expected, **EXACT)


def test_what_verl_adds_to_the_losses_of_the_appendix():
    """A = +-1. verl ends a ratio of 5 at its dual clip, 3, without a gradient; log ratios of 25 at 20, of 12 at 10."""
    objective = GRPO()
    batch = two_rows(objective, [[0.0, 0.0], [math.log(5.0), 25.0]])
    logp = batch.logp.clone().requires_grad_()
    loss = objective.loss(replace(batch, logp=logp))
    torch.testing.assert_close(loss[1], torch.tensor([5.0, math.exp(25)], dtype=torch.float64), atol=0, rtol=1e-12)
    loss[1, 0].backward()
    torch.testing.assert_close(logp.grad[1], torch.tensor([5.0, 0.0], dtype=torch.float64), **EXACT)
    # the log ratio of GSPO is the mean of 12 over the tokens, and the side of A < 0 has no upper clip
    whole = GSPO()
    batch = two_rows(whole, [[0.0, 0.0], [12.0, 12.0]])
    torch.testing.assert_close(whole.loss(batch)[1].item(), math.exp(12), atol=0, rtol=1e-12)
    # one success of 16 at +-1: 1.875 / (0.5 + 1e-6) there, in units of the sample std; 1.875 / sqrt(15 / 64) here
    reward = draws([1.0] + [-1.0] * 15)
    sample = GRPO(std="sample").advantage(reward)[0, 0].item()
    assert sample == pytest.approx(1.875 / 0.5, rel=1e-12)
    assert abs(sample / (1.875 / (0.5 + 1e-6)) - 1) < 2.1e-6
    assert GRPO().advantage(reward)[0, 0].item() == pytest.approx(1.875 / math.sqrt(15 / 64), rel=1e-12)


def test_chi2_by_hand():
    """k 1/2, s = log 2: link (log 2 + 1) / 2; tau 1 and A = 1: (1 - 0.8466)^2 / 2."""
    objective = Chi2PO(tau=1.0)
    loss = objective.loss(two_rows(objective, [[math.log(2), 0.0], [0.0, 0.0]]))
    assert loss[0].item() == pytest.approx((1 - (math.log(2) + 1) / 2) ** 2 / 2, abs=1e-12)
    torch.testing.assert_close(objective.advantage(draws([1.0, 0.0, 0.0])), row(1.0, -0.5, -0.5), **EXACT)
    for share, link in ((0.25, (math.log(2) + 3) / 4), (1.0, math.log(2))):
        other = Chi2PO(tau=1.0, kl_share=share)
        loss = other.loss(two_rows(other, [[math.log(2), 0.0], [0.0, 0.0]]))
        assert loss[0].item() == pytest.approx((1 - link) ** 2 / 2, abs=1e-12)
    assert [Chi2PO(kl_share=share).population for share in (0.5, 1.0)] == [None, "pmd_mean"]
