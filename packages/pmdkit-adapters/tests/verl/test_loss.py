"""The registered loss against pmdkit's total: splits, padding, ranks, scaling, importance weights."""

from dataclasses import replace

import pytest
import torch
from verl.trainer.ppo.core_algos import get_policy_loss_fn
from verl.workers.config import FSDPActorConfig
from verl_rows import LOSS, actor, rows

from pmdkit.errors import UsageError
from pmdkit.objectives import Groups, PMDMean, PMDPart, credit, load_objective, total

OBJECTIVES = {
    "pmd-mean": (PMDMean(tau=0.05), ["+pmd=mean", f"{LOSS}pmd_tau=0.05"]),
    "pmd-mean-sum": (
        PMDMean(tau=0.2, norm="none", baseline="mean", scale="paper"),
        ["+pmd=mean", f"{LOSS}pmd_tau=0.2", f"+{LOSS}pmd_options={{norm:none,baseline:mean,scale:paper}}"],
    ),
    "pmd-part-budget": (
        PMDPart(tau=0.5, norm="max", target_cap=18.42),
        [
            "+pmd=part",
            f"{LOSS}pmd_tau=0.5",
            f"+{LOSS}pmd_options={{norm:max,target_cap:18.42}}",
            "data.max_response_length=20",
        ],
    ),
    "chi2-po": (
        load_objective("chi2-po", tau=0.3, kl_share=0.7),
        ["+pmd=any", f"{LOSS}pmd_objective=chi2-po", f"{LOSS}pmd_tau=0.3", f"+{LOSS}pmd_options={{kl_share:0.7}}"],
    ),
    "grpo": (load_objective("grpo"), ["+pmd=any", f"{LOSS}pmd_objective=grpo"]),
}


def whole(objective, old, new, mask, reward, width=None, correction=None):
    """Loss and gradient by pmdkit alone."""
    logp = new.clone().requires_grad_()
    batch = credit(objective, Groups(reward, torch.full_like(reward, 1 / reward.shape[1])), old, mask, width=width)
    loss = total(objective, replace(batch, logp=logp, correction=correction))
    (gradient,) = torch.autograd.grad(loss, logp)
    return loss, gradient, batch


def by_verl(config, old, new, mask, advantage, parts, ranks=1, weights=None):
    """Loss and gradient by the registered function, over micro-batches of these row numbers."""
    logp = new.clone().requires_grad_()
    config.global_batch_info.update(dp_size=ranks, batch_num_tokens=int(mask.sum()), global_batch_size=len(mask))
    function = get_policy_loss_fn(config.policy_loss.loss_mode)
    loss = torch.zeros((), dtype=torch.float64)
    for part in parts:
        share, _ = function(
            old_log_prob=old[part],
            log_prob=logp[part],
            advantages=(advantage[:, None] * mask)[part],
            response_mask=mask[part].long(),
            loss_agg_mode=config.loss_agg_mode,
            config=config,
            rollout_is_weights=None if weights is None else weights[part],
        )
        loss = loss + share / ranks  # ranks average
    (gradient,) = torch.autograd.grad(loss, logp)
    return loss, gradient


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("cuts", [[12], [1, 11], [7, 2, 3], [1] * 12])
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_split_adds_up_to_the_total(name, cuts, ranks):
    objective, overrides = OBJECTIVES[name]
    old, new, mask, reward = rows()
    loss, gradient, batch = whole(objective, old, new, mask, reward, width=20)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(len(cuts)))
    found = by_verl(actor(*overrides), old, new, mask, batch.advantage, order.split(cuts), ranks)
    torch.testing.assert_close(found[0], loss, atol=1e-12, rtol=1e-12)
    torch.testing.assert_close(found[1], gradient, atol=1e-13, rtol=1e-12)


@pytest.mark.parametrize("mode", ["token-mean", "token-sum", "seq-mean-token-mean", "seq-mean-token-sum-norm"])
def test_the_user_s_aggregation_mode_has_no_say(mode):
    objective, overrides = OBJECTIVES["pmd-mean"]
    old, new, mask, reward = rows()
    loss, _, batch = whole(objective, old, new, mask, reward)
    config = actor(
        *overrides, f"actor_rollout_ref.actor.loss_agg_mode={mode}", "actor_rollout_ref.actor.loss_scale_factor=7"
    )
    torch.testing.assert_close(
        by_verl(config, old, new, mask, batch.advantage, [slice(None)])[0], loss, atol=1e-12, rtol=0
    )


def test_padding_is_never_read():
    objective, overrides = OBJECTIVES["pmd-mean"]
    old, new, mask, reward = rows()
    loss, gradient, batch = whole(objective, old, new, mask, reward)
    junk = torch.full((12, 5), torch.nan, dtype=torch.float64)
    wide = [torch.cat([values.masked_fill(~mask, torch.inf), junk], 1) for values in (old, new)]
    longer = torch.cat([mask, torch.zeros(12, 5, dtype=torch.bool)], 1)
    found = by_verl(actor(*overrides), *wide, longer, batch.advantage, [slice(None)])
    torch.testing.assert_close(found[0], loss, atol=1e-12, rtol=0)
    torch.testing.assert_close(found[1][:, :7], gradient, atol=1e-13, rtol=0)
    assert (found[1][:, 7:] == 0).all()


def test_rows_that_verl_adds_count_in_the_mean_alone():
    """verl fills a batch with rows without tokens: loss 0, but part of `global_batch_size`."""
    objective, overrides = OBJECTIVES["pmd-mean"]
    old, new, mask, reward = rows()
    loss, _, batch = whole(objective, old, new, mask, reward)
    more = [torch.cat([values, values[:4]]) for values in (old, new)]
    longer = torch.cat([mask, torch.zeros(4, 7, dtype=torch.bool)])
    advantage = torch.cat([batch.advantage, torch.zeros(4)])
    found, _ = by_verl(actor(*overrides), *more, longer, advantage, [slice(None)])
    torch.testing.assert_close(found, loss * 12 / 16, atol=1e-12, rtol=0)


def test_a_weight_per_response_is_pmdkit_s_correction():
    objective, overrides = OBJECTIVES["pmd-mean"]
    old, new, mask, reward = rows()
    weights = torch.linspace(0.0, 2.0, 12, dtype=torch.float64)
    loss, gradient, batch = whole(objective, old, new, mask, reward, correction=weights)
    spread = torch.where(mask, weights[:, None], 0.0)
    found = by_verl(actor(*overrides), old, new, mask, batch.advantage, [slice(0, 5), slice(5, 12)], weights=spread)
    torch.testing.assert_close(found[0], loss, atol=1e-12, rtol=0)
    torch.testing.assert_close(found[1], gradient, atol=1e-13, rtol=0)


def test_what_is_refused():
    """Weights and advantages by token, and another class of configuration."""
    _, overrides = OBJECTIVES["pmd-mean"]
    old, new, mask, _ = rows()
    by_token = torch.rand(12, 7)
    with pytest.raises(UsageError):
        by_verl(actor(*overrides), old, new, mask, torch.ones(12), [slice(None)], weights=by_token)
    plain = FSDPActorConfig(rollout_n=4, ppo_micro_batch_size_per_gpu=1)
    for advantage, config in ((by_token, actor(*overrides)), (torch.zeros(12, 7), plain)):
        with pytest.raises(UsageError):
            get_policy_loss_fn("pmd")(old, new, advantage, mask, config=config)


def test_float32_in_float32_out_with_sums_in_float64():
    objective, overrides = OBJECTIVES["pmd-mean"]
    old, new, mask, reward = (x.float() if x.is_floating_point() else x for x in rows(width=4096))
    loss, gradient, batch = whole(objective, old, new, mask, reward)
    found = by_verl(actor(*overrides), old, new, mask, batch.advantage, [slice(0, 3), slice(3, 12)])
    torch.testing.assert_close(found[0], loss, rtol=1e-6, atol=0)
    torch.testing.assert_close(found[1], gradient, rtol=1e-6, atol=0)
