"""Advantage estimators and policy losses for verl: an objective's own `advantage` and `loss`.

Groups are found by their uid. verl sums over micro-batches, averages gradients over data-parallel ranks and, under
Megatron, multiplies by the number of micro-batches; `agg_loss` compensates for all of this. It is given one number,
so the user's `loss_agg_mode` has no effect.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor
from verl.trainer.ppo.core_algos import agg_loss
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from pmdkit.adapters.verl.config import OBJECTIVE_OF, PMDPolicyLossConfig, estimator_objective, self_check
from pmdkit.errors import UsageError
from pmdkit.objectives import Batch, Groups, Objective, row_weight, temperature, total


def groups_by_uid(uid: Any, response_mask: Tensor, group: int) -> Tensor:
    """[P, G] row numbers of each prompt's responses.

    Rows that verl adds as padding have their own uid and no tokens; they belong to no group.

    Args:
        uid: [N], the prompt that a row answers.
        response_mask: [N, T].
        group: responses to each prompt, `rollout.n`.

    Raises:
        UsageError: no uid, a group of one, or a group of the wrong size.
    """
    if uid is None:
        raise UsageError("the batch has no uid; a group baseline needs verl's `uid` to know which rows share a prompt")
    rows: dict[Any, list[int]] = {}
    for row, name in enumerate(np.asarray(uid, dtype=object).tolist()):
        rows.setdefault(name, []).append(row)
    has_tokens = response_mask.bool().any(1).tolist()
    found = {name: members for name, members in rows.items() if any(has_tokens[row] for row in members)}
    if group < 2:
        raise UsageError(
            f"rollout.n is {group}; expected at least 2: a group baseline compares a response with its peers"
        )
    wrong = {name: len(members) for name, members in found.items() if len(members) != group}
    if wrong:
        name, size = next(iter(wrong.items()))
        raise UsageError(
            f"{len(wrong)} of {len(found)} groups do not have rollout.n = {group} rows (uid {name} has {size}); "
            "expected one row per response: agent loops with several outputs per session, and sessions that fail, are "
            "not supported"
        )
    return torch.tensor(list(found.values()), dtype=torch.int64).view(-1, group)


def grouped_rewards(token_level_rewards: Tensor, rows: Tensor) -> Groups:
    """Rewards [P, G] in float64: the sum of a row's token-level rewards."""
    reward = token_level_rewards.double().sum(-1)[rows.to(token_level_rewards.device)]
    return Groups(reward, torch.full_like(reward, 1 / reward.shape[1]))


def over_rows(values: Tensor, rows: Tensor, count: int) -> Tensor:
    """[N] from [P, G]; 0 for a row that is in no group."""
    out = values.new_zeros(count)
    out[rows.flatten().to(values.device)] = values.flatten()
    return out


def advantages(
    objective: Objective, token_level_rewards: Tensor, response_mask: Tensor, uid: Any, group: int
) -> Tensor:
    """[N, T] the advantage of a response on each of its tokens, as verl carries it; 0 off the mask."""
    rows = groups_by_uid(uid, response_mask, group)
    with torch.no_grad():
        advantage = objective.advantage(grouped_rewards(token_level_rewards, rows))
    by_row = over_rows(advantage, rows, len(response_mask)).to(token_level_rewards.dtype)
    return torch.where(response_mask.bool(), by_row[:, None], 0.0)


def row_tau(objective: Objective, token_level_rewards: Tensor, response_mask: Tensor, uid: Any, group: int) -> Tensor:
    """[N] the temperature of each row's prompt, reward units, float64; 1 for a row in no group, whose loss is 0."""
    rows = groups_by_uid(uid, response_mask, group)
    tau = temperature(objective, grouped_rewards(token_level_rewards, rows))
    out = over_rows(tau[:, None].expand(rows.shape), rows, len(response_mask))
    return torch.where(out > 0, out, 1.0)


def estimate(
    token_level_rewards: Tensor, response_mask: Tensor, index: Any = None, config: Any = None, **unused: Any
) -> tuple[Tensor, Tensor]:
    """Advantages and returns in the form that verl expects, both [N, T] and the same.

    The baseline is taken over all responses of a prompt, including those that verl's rejection masked: rejection is an
    importance weight of 0 and says nothing about the reward.

    Args:
        token_level_rewards: [N, T].
        response_mask: [N, T].
        index: [N] uid of each row's prompt.
        config: verl's `algorithm` node; `config.pmd` has the objective, tau, options and group size.
        unused: arguments that verl passes for other estimators.
    """
    objective, group = estimator_objective(config)
    found = advantages(objective, token_level_rewards, response_mask, index, group)
    return found, found


# the same function under each name: the start-up check ties pmd_mean and pmd_part to their objectives
ESTIMATORS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = dict.fromkeys([*OBJECTIVE_OF, "pmdkit"], estimate)


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
        rollout_is_weights: [N, T], the same number on all tokens of a response.

    Raises:
        UsageError: another configuration class, or an adaptive temperature, which this loss cannot see.
    """
    options = options_of(config)
    objective = options.objective()
    tau = getattr(objective, "tau", torch.nan)
    if callable(tau):
        raise UsageError(
            "tau is a rule, and verl's policy losses are not given one tau per prompt; expected a number, or the "
            "trainer that carries it: +pmd=mean_adaptive, which sets trainer.v1.trainer_mode=pmd_sync"
        )
    self_check()
    rows = log_prob.new_full(log_prob.shape[:1], tau, dtype=torch.float64)
    batch = batch_of(objective, log_prob, old_log_prob, response_mask, advantages, rows, options.pmd_width)
    return aggregated(objective, with_correction(batch, rollout_is_weights), config.global_batch_info)


def loss_with_tau(
    config: Any, model_output: dict[str, Tensor], data: TensorDict, dp_group: Any = None
) -> tuple[Tensor, dict[str, Any]]:
    """Replaces verl's `ppo_loss` under the trainer `pmd_sync`: the loss of `policy_loss`, with the batch's `pmd_tau`.

    Args:
        config: verl's ActorConfig.
        model_output: `log_probs`, nested, prompt and response.
        data: a micro-batch, with `pmd_tau` beside the fields of `ppo_loss`.
        dp_group: not used.
    """
    options = options_of(config)
    objective = options.objective()
    self_check()
    log_prob = no_padding_2_padding(model_output["log_probs"], data)
    info = {name: data[name] for name in ("dp_size", "batch_num_tokens", "global_batch_size")}
    names = ["response_mask", "old_log_probs", "advantages", "pmd_tau"]
    weights = ["rollout_is_weights"] if "rollout_is_weights" in data else []
    rows = data.select(*names, *weights).to_padded_tensor()
    mask = rows["response_mask"].bool()
    tau = one_per_row(rows["pmd_tau"], mask, "pmd_tau")
    tau = torch.where(mask.any(1), tau.double(), 1.0)
    batch = batch_of(objective, log_prob, rows["old_log_probs"], mask, rows["advantages"], tau, options.pmd_width)
    loss, metrics = aggregated(objective, with_correction(batch, rows.get("rollout_is_weights", None)), info)
    named = Metric.from_dict(metrics, aggregation=AggregationType.MEAN)
    return loss, {**named, "actor/pg_loss": Metric(value=loss, aggregation=AggregationType.SUM)}


def batch_of(
    objective: Objective,
    log_prob: Tensor,
    old_log_prob: Tensor,
    response_mask: Tensor,
    advantages: Tensor,
    tau: Tensor,
    width: int | None,
) -> Batch:
    """verl's [N, T] tensors as a batch. The weight is the length rule; `agg_loss` divides by the number of rows."""
    mask = response_mask.bool()
    length = mask.sum(1).clamp_min(1)
    ones = torch.ones(len(mask), dtype=torch.float64, device=mask.device)
    return Batch(
        logp=log_prob,
        logp_old=old_log_prob.detach(),
        mask=mask,
        length=length,
        advantage=one_per_row(advantages, mask, "advantages").double(),
        weight=row_weight(ones[:, None], length, objective.norm, width) * len(mask),
        tau=tau,
        mass=ones,
        group=torch.arange(len(mask), device=mask.device),
    )


def with_correction(batch: Batch, rollout_is_weights: Tensor | None) -> Batch:
    """The batch with verl's importance weights of the engine mismatch, one per response."""
    if rollout_is_weights is None:
        return batch
    return replace(batch, correction=one_per_row(rollout_is_weights, batch.mask, "rollout_is_weights").double())


def aggregated(objective: Objective, batch: Batch, info: dict[str, Any]) -> tuple[Tensor, dict[str, float]]:
    """The micro-batch's share of the loss, scaled by verl's own `agg_loss`, and metrics of the micro-batch."""
    loss = total(objective, batch)
    scale = {name: info.get(name) for name in ("batch_num_tokens", "global_batch_size")}
    if scale["global_batch_size"] is None:
        scale["global_batch_size"] = max(int(batch.mask.any(1).sum()), 1)
    one = torch.ones(1, 1, device=loss.device)
    share = agg_loss(loss.view(1, 1), one, "seq-mean-token-sum", dp_size=info.get("dp_size", 1), **scale)
    return share.to(batch.logp.dtype), measured(batch)


def measured(batch: Batch) -> dict[str, float]:
    """Means over the responses of this micro-batch; verl averages them over micro-batches, whatever their size."""
    with torch.no_grad():
        present = batch.mask.any(1)
        count = present.sum().clamp_min(1)
        ratio = torch.where(present, batch.seq_log_ratio, 0.0)
        per_token = batch.log_ratio.double().sum() / batch.mask.sum().clamp_min(1)
        return {
            "actor/ppo_kl": -per_token.item(),
            "actor/log_ratio": (ratio.sum() / count).item(),
            "actor/log_ratio_rms": ((ratio**2).sum() / count).sqrt().item(),
        }


def one_per_row(values: Tensor, mask: Tensor, name: str) -> Tensor:
    """[N] the number that a row's tokens share; 0 for a row without tokens.

    Raises:
        UsageError: the tokens of a row differ.
    """
    low = torch.where(mask, values, torch.inf).amin(1)
    high = torch.where(mask, values, -torch.inf).amax(1)
    present = mask.any(1)
    if bool((present & (low != high)).any()):
        raise UsageError(
            f"{name} differs between the tokens of a response; expected one number per response: an advantage "
            "estimator of pmdkit, and rollout_correction.rollout_is=sequence or null"
        )
    return torch.where(present, low, 0.0)


def options_of(config: Any) -> PMDPolicyLossConfig:
    """The policy loss of an ActorConfig; refused if it is of another class."""
    found = getattr(config, "policy_loss", None)
    if not isinstance(found, PMDPolicyLossConfig):
        raise UsageError(
            f"actor.policy_loss is a {type(found).__name__}; expected PMDPolicyLossConfig: add +pmd=mean to verl's "
            "overrides, see docs/use/verl.md"
        )
    return found


LOSSES: dict[str, Callable[..., tuple[Tensor, dict[str, float]]]] = {"pmd": policy_loss, "pmdkit": policy_loss}
