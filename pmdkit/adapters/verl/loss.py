"""Policy losses for verl's registry: the objective's own `loss`, reduced by pmdkit's `total` and verl's `agg_loss`.

verl sums over micro-batches, averages gradients over data-parallel ranks and, under Megatron, multiplies by the number
of micro-batches; `agg_loss` makes up for all of it. It is given one number: the user's `loss_agg_mode` has no say.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor
from verl.trainer.ppo.core_algos import agg_loss
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from pmdkit.adapters.verl.config import PMDPolicyLossConfig, self_check
from pmdkit.errors import UsageError
from pmdkit.objectives import Batch, Objective, row_weight, total


def policy_loss(
    old_log_prob: Tensor,
    log_prob: Tensor,
    advantages: Tensor,
    response_mask: Tensor,
    loss_agg_mode: str = "unused",
    config: Any = None,
    rollout_is_weights: Tensor | None = None,
) -> tuple[Tensor, dict[str, float]]:
    """The loss of a micro-batch and its metrics, as verl asks for them.

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
    """What replaces verl's `ppo_loss` under the trainer `pmd_sync`: the same loss, with the batch's own `pmd_tau`.

    Args:
        config: verl's ActorConfig.
        model_output: `log_probs`, nested, prompt and response.
        data: a micro-batch, with `pmd_tau` beside the fields of `ppo_loss`.
        dp_group: has no use here.
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
    """verl's [N, T] tensors as a batch; the weight is the length rule alone, the number of rows is `agg_loss`'s."""
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
    """The policy loss of an ActorConfig, refused where it is of another class."""
    found = getattr(config, "policy_loss", None)
    if not isinstance(found, PMDPolicyLossConfig):
        raise UsageError(
            f"actor.policy_loss is a {type(found).__name__}; expected PMDPolicyLossConfig: add +pmd=mean to verl's "
            "overrides, see docs/use/verl.md"
        )
    return found


LOSSES: dict[str, Callable[..., tuple[Tensor, dict[str, float]]]] = {"pmd": policy_loss, "pmdkit": policy_loss}
