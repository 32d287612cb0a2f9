"""The advantage estimator and the policy loss that are registered in verl: an objective's own `advantage` and `loss`.

verl sums over micro-batches, averages gradients over data-parallel ranks and, under Megatron, multiplies by the number
of micro-batches; `agg_loss` compensates for all of this. It is given one number, so the user's `loss_agg_mode` has no
effect.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor
from verl.trainer.ppo.core_algos import agg_loss

from pmdkit.errors import UsageError
from pmdkit.objectives import Batch, Groups, row_weight, total
from pmdkit_adapters.verl.config import PMDPolicyLossConfig, objective_of


def advantage_estimator(
    token_level_rewards: Tensor, response_mask: Tensor, index: Any = None, config: Any = None, **unused: Any
) -> tuple[Tensor, Tensor]:
    """Advantages and returns in the form that verl expects, both [N, T] and the same: a response's on all its tokens.

    The baseline is taken over all responses of a prompt, including those that verl's rejection masked: rejection is an
    importance weight of 0 and says nothing about the reward. `index` [N] is the uid of each row's prompt, and `config`
    verl's `algorithm` node, whose `pmd` points at the policy loss.
    """
    settings = None if config is None else config.get("pmd")
    if settings is None:
        raise UsageError("algorithm.pmd is missing; add +pmd=mean to verl's overrides, see docs/use/trainers.md")
    mask = response_mask.bool()
    rows = rows_by_uid(index, mask, settings.pmd_group)
    reward = token_level_rewards.double().sum(-1)[rows]
    with torch.no_grad():
        advantage = objective_of(settings).advantage(Groups(reward, torch.full_like(reward, 1 / reward.shape[1])))
    by_row = token_level_rewards.new_zeros(len(mask))
    by_row[rows.flatten()] = advantage.flatten().to(by_row)
    found = torch.where(mask, by_row[:, None], 0.0)
    return found, found


def rows_by_uid(uid: Any, mask: Tensor, group: int) -> Tensor:
    """[P, G] row numbers of each prompt's responses; rows without tokens, which verl adds as padding, are in none."""
    if uid is None:
        raise UsageError("the batch has no uid; a group baseline needs verl's `uid` to know which rows share a prompt")
    names, prompt = np.unique(np.asarray(uid, dtype=str), return_inverse=True)
    rows = [np.flatnonzero(prompt == number) for number in range(len(names))]
    found = [members for members in rows if bool(mask[torch.from_numpy(members)].any())]
    if group < 2 or any(len(members) != group for members in found):
        got = f"groups have {sorted({len(members) for members in found})} rows and rollout.n is {group}"
        why = "agent loops with several outputs per session, and sessions that fail, are not supported"
        raise UsageError(f"{got}; expected rollout.n, at least 2, for every prompt: {why}")
    return torch.from_numpy(np.stack(found)).to(mask.device)


def policy_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "unused",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of a micro-batch and its metrics, in the form that verl expects.

    Args:
        old_log_prob, log_prob: [N, T], nats; only `log_prob` has a gradient.
        advantages: [N, T], the same number on all tokens of a response.
        response_mask: [N, T].
        loss_agg_mode: has no effect.
        config: verl's ActorConfig; its `policy_loss` is a PMDPolicyLossConfig.
        rollout_is_weights: [N, T] importance weights of the engine mismatch, the same on all tokens of a response.
    """
    settings = config.policy_loss
    if not isinstance(settings, PMDPolicyLossConfig):
        raise UsageError(f"actor.policy_loss is a {type(settings).__name__}; add +pmd=mean to verl's overrides")
    objective = objective_of(settings)
    mask = response_mask.bool()
    length, ones = mask.sum(1).clamp_min(1), log_prob.new_ones(len(mask), dtype=torch.float64)
    weights = rollout_is_weights
    batch = Batch(
        logp=log_prob,
        logp_old=old_log_prob.detach(),
        mask=mask,
        length=length,
        advantage=one_per_row(advantages, mask, "advantages"),
        weight=row_weight(ones[:, None], length, objective.norm, settings.pmd_width) * len(mask),  # the length rule
        tau=ones * getattr(objective, "tau", torch.nan),
        mass=ones,
        group=torch.arange(len(mask), device=mask.device),
        correction=None if weights is None else one_per_row(weights, mask, "rollout_is_weights"),
    )
    loss = total(objective, batch)
    # the mini-batch's mean over responses: as many sequences of one token, of which this is the sum
    info = config.global_batch_info
    sizes = {name: info[name] for name in ("dp_size", "batch_num_tokens", "global_batch_size") if name in info}
    sizes.setdefault("global_batch_size", len(mask))
    share = agg_loss(loss.view(1, 1), loss.new_ones(1, 1), "seq-mean-token-sum", **sizes)
    with torch.no_grad():
        present = mask.any(1)
        ratio = batch.seq_log_ratio[present]
        metrics = {
            "actor/ppo_kl": -(ratio.sum() / mask.sum().clamp_min(1)).item(),
            "actor/log_ratio": ratio.mean().item(),
            "actor/log_ratio_rms": ratio.square().mean().sqrt().item(),
        }
    return share.to(log_prob.dtype), metrics


def one_per_row(values: Tensor, mask: Tensor, name: str) -> Tensor:
    """[N] float64, the number that a row's tokens share; 0 for a row without tokens."""
    low = torch.where(mask, values, torch.inf).amin(1)
    high = torch.where(mask, values, -torch.inf).amax(1)
    present = mask.any(1)
    if bool((present & (low != high)).any()):
        remedy = "take the advantage estimator pmd, and rollout_correction.rollout_is=sequence or null"
        raise UsageError(f"{name} differs between the tokens of a response; {remedy}")
    return torch.where(present, low, 0.0).double()
