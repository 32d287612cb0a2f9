"""The reduction: weights, parts, corrections, groups that cannot teach - in float32 too, as trainers use it."""

from dataclasses import replace

import pytest
import torch

from pmdkit.objectives import (
    GRPO,
    OBJECTIVES,
    REBEL,
    Groups,
    PMDMean,
    ReinforcePP,
    coefficient,
    credit,
    cut,
    parts,
    total,
)
from pmdkit.objectives.credit import RoundingCheck
from pmdkit.testing.objectives import ragged_draws, same, value_and_gradient


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("norm", ["none", "length", "max", "tokens"])
def test_a_batch_without_a_single_score_is_zero_not_nan(norm, dtype):
    reward = torch.full((2, 3), torch.nan, dtype=dtype)
    groups = Groups(reward, torch.zeros_like(reward))
    logp = torch.full((6, 4), -1.0, dtype=dtype)
    for kind in (PMDMean, GRPO, REBEL):
        objective = kind(norm=norm)
        batch = credit(objective, groups, logp, torch.ones(6, 4, dtype=torch.bool), width=4)
        value, gradient = value_and_gradient(objective, replace(batch, logp=logp + 0.1))
        assert value == 0
        assert bool((gradient == 0).all())


def test_parts_are_equal_runs_in_order():
    assert list(parts(7, 3)) == [slice(0, 2), slice(2, 4), slice(4, 7)]
    assert list(parts(32, 32)) == [slice(k, k + 1) for k in range(32)]


def test_a_cut_keeps_the_tokens_of_the_whole_batch():
    """Under norm "tokens": a part of long responses weighs more than one of short ones, as it does in the whole."""
    objective = GRPO(norm="tokens")
    it = ragged_draws(0)
    batch = it.on_policy(objective)
    tokens = it.mask.sum(1).double().reshape(4, 5).mean(1)
    for prompt in range(4):
        part = cut(batch, slice(prompt, prompt + 1), 4, 5)
        expected = tokens[prompt] / tokens.mean()
        assert (part.weight * part.length).sum().item() == pytest.approx(expected.item(), abs=1e-12)


def test_a_weight_per_group_scales_each_group_and_nothing_else():
    class Weighted(PMDMean):
        def group_weight(self, groups):
            return torch.arange(4.0)

    it = ragged_draws(0)
    plain, weighted = it.batch(PMDMean()), it.batch(Weighted())
    factor = torch.arange(4.0).repeat_interleave(5)
    assert torch.equal(weighted.weight, plain.weight * factor)
    assert torch.equal(weighted.advantage, plain.advantage)
    for values in (torch.ones(3), torch.full((4,), -1.0), torch.full((4,), torch.nan)):
        Weighted.group_weight = lambda self, groups, values=values: values
        with pytest.raises(ValueError, match="group_weight returned"):
            it.batch(Weighted())


@pytest.mark.parametrize("objective", [PMDMean(), GRPO()])
def test_a_correction_per_response_scales_its_gradient(objective):
    it = ragged_draws(0)
    batch = it.batch(objective)
    factor = torch.linspace(0.5, 2.0, len(batch.logp), dtype=torch.float64)
    _, gradient = value_and_gradient(objective, batch)
    _, corrected = value_and_gradient(objective, replace(batch, correction=factor))
    same(corrected, factor[:, None] * gradient, "correction")
    if objective.loss(batch).ndim == 1:
        numbers = coefficient(objective, replace(batch, correction=factor))
        same(numbers, factor * coefficient(objective, batch), "coefficient")


def test_a_correction_off_the_mask_is_never_read():
    """NaN weights of padding, and of a response that is absent, change neither the loss nor its gradient."""
    it = ragged_draws(0)
    objective = GRPO()
    batch = it.batch(objective)
    correction = torch.where(it.mask, 1.5, torch.nan)
    value, gradient = value_and_gradient(objective, batch)
    corrected, corrected_gradient = value_and_gradient(objective, replace(batch, correction=correction))
    same(corrected, 1.5 * value, "value")
    same(corrected_gradient, 1.5 * gradient, "gradient")
    absent = Groups(it.groups.reward, torch.where(torch.arange(5) == 1, 0.0, it.groups.mass))
    batch = replace(it, groups=absent).batch(PMDMean())
    rows = torch.where(batch.weight > 0, 1.0, torch.nan)
    same(total(PMDMean(), replace(batch, correction=rows)), total(PMDMean(), batch), "absent")


def test_a_correction_per_token_is_refused_by_a_loss_per_response():
    batch = ragged_draws(0).batch(PMDMean())
    with pytest.raises(ValueError, match="takes one correction per response"):
        total(PMDMean(), replace(batch, correction=torch.ones_like(batch.logp)))


def test_a_reduced_loss_is_refused():
    class Reduced(PMDMean):
        def loss(self, batch):
            return super().loss(batch).mean()

    with pytest.raises(ValueError, match="one number per response"):
        total(Reduced(), ragged_draws(0).batch(PMDMean()))


def test_credit_keeps_the_gradient_of_logp_alone():
    """At pi = pi_old the same tensor may serve as both; its gradient must not cancel in the ratio."""
    logits = torch.tensor([[0.3, -0.2]], dtype=torch.float64, requires_grad=True)
    logp = logits.log_softmax(1).reshape(2, 1)
    groups = Groups(torch.tensor([[1.0, 0.0]], dtype=torch.float64), logits.detach().softmax(1), sampled=False)
    total(PMDMean(), credit(PMDMean(), groups, logp, torch.ones(2, 1, dtype=torch.bool))).backward()
    p = logits.detach().softmax(1)[0, 0]
    expected = p * (1 - p) * torch.tensor([[-1.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(logits.grad, expected, atol=1e-12, rtol=0)


def test_sequences_are_summed_in_float64():
    """2,048 tokens in float32: the sum agrees with exact arithmetic on the same floats to 1e-10 nats."""
    random = torch.Generator().manual_seed(0)
    logp_old = -torch.rand(2, 2048, generator=random)
    logp = logp_old + 0.01 * torch.randn(2, 2048, generator=random)
    groups = Groups(torch.tensor([[1.0, 0.0]]), torch.full((1, 2), 0.5))
    batch = replace(credit(PMDMean(), groups, logp_old, torch.ones(2, 2048, dtype=torch.bool)), logp=logp)
    exact = [sum(row) for row in (logp - logp_old).double().tolist()]
    assert batch.seq_log_ratio.tolist() == pytest.approx(exact, abs=1e-10)


def test_prompts_apart_are_credited_as_batches_of_their_own():
    """An absent row and a prompt that stands there twice included; without the trait nothing changes."""
    it = ragged_draws(0)
    reward, mass = it.groups.reward.clone(), it.groups.mass.clone()
    reward[3], reward[1, 2], mass[1, 2] = reward[2], torch.nan, 0.0
    it = replace(it, groups=Groups(reward, mass))
    whole, apart = (
        credit(ReinforcePP(), it.groups, it.logp_old, it.mask, prompts_apart=choice) for choice in (False, True)
    )
    grpo = credit(GRPO(), it.groups, it.logp_old, it.mask, prompts_apart=True)
    same(apart.advantage, grpo.advantage, "one prompt is GRPO's", atol=1e-12)
    assert (whole.advantage - apart.advantage).abs().max() > 0.1
    assert torch.equal(grpo.advantage, it.on_policy(GRPO()).advantage)
    assert torch.equal(apart.weight, whole.weight)


def test_centred_takes_the_mean_of_each_group_by_mass():
    """Groups 7 and 3, rows mixed: means 0.25 * 4 / 1 = 1 and 2."""
    batch = replace(
        ragged_draws(0, prompts=1, size=3, tokens=2).batch(REBEL()),
        group=torch.tensor([7, 3, 7]),
        mass=torch.tensor([0.25, 0.5, 0.75], dtype=torch.float64),
    )
    found = batch.centred(torch.tensor([4.0, 2.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(found, torch.tensor([3.0, 0.0, -1.0], dtype=torch.float64), atol=1e-15, rtol=0)


@pytest.mark.parametrize("name", ["rebel", "tb"])
def test_the_rounding_of_one_response_is_in_the_coefficients_of_its_peers(name):
    """Equal rewards, nothing has moved, and one response of -3000 nats is rounded, by 4e-4; its peers have -1 nat each.

    A loss that compares responses spreads these 4e-4 over the group; eight eps of a peer's own nat are 1e-6.
    """
    objective = OBJECTIVES[name](tau=0.1) if name == "tb" else REBEL()
    logp_old = torch.tensor([[-3000.0], [-1.0], [-1.0], [-1.0]], dtype=torch.float64)
    groups = Groups(torch.zeros(1, 4, dtype=torch.float64), torch.full((1, 4), 0.25, dtype=torch.float64))
    batch = credit(objective, groups, logp_old, torch.ones(4, 1, dtype=torch.bool), logp_old)
    for moved, signal in ((0.0, False), (3000 * torch.finfo(torch.float32).eps, False), (0.5, True)):
        check = RoundingCheck(objective)
        check(batch, range(4), logp_old + torch.tensor([[moved], [0.0], [0.0], [0.0]]))
        assert check.signal == signal, moved
