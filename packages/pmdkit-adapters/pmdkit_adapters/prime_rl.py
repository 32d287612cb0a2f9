"""pmdkit's objectives as prime-rl's `rl` loss: `import_path = "pmdkit_adapters.prime_rl.loss"` under `[trainer.loss]`.

prime-rl calls a loss of one's own with one response at a time, gives it an advantage that its own algorithm has
computed, and divides the sum over a batch by all its tokens. Read from prime-rl @559b447 (21 August 2026).
"""

import json
from functools import cache
from typing import Any

import torch
from prime_rl.trainer.rl.loss import LossInputs, LossOutputs
from torch import Tensor

from pmdkit.errors import UsageError
from pmdkit.objectives import Batch, Groups, Objective, load_objective, total, traits
from pmdkit.objectives.regulariser import added_terms


def loss(
    inputs: LossInputs, objective: str = "pmd-mean", tau: float | None = None, group: int | None = None, **options: Any
) -> LossOutputs:
    """The loss of one response, summed over its tokens, and its log ratio in nats; what prime-rl calls.

    Args:
        inputs: prime-rl's, [T] each: log-probabilities of trainer and engine, advantages, mask, weights or None.
        objective: a key of OBJECTIVES, or "my.py:MyLoss".
        tau: temperature in reward units, > 0; None for an objective without one.
        group: `group_size` of the orchestrator, for a baseline without the own draw: prime-rl's mean has it, and the
            advantage is multiplied by what this changes, G / (G - 1). None for `baseline="mean"`.
        options: other fields of the objective. `norm` is "tokens".

    Raises:
        UsageError: the objective needs more than prime-rl gives to a loss, or tokens of a response differ in their
            advantage or weight.
    """
    method, times = build(objective, tau, group, json.dumps(options, sort_keys=True))
    mask, ones = inputs.loss_mask, torch.ones(1, dtype=torch.float64, device=inputs.loss_mask.device)
    weights = inputs.loss_weights
    batch = Batch(
        logp=inputs.trainer_logprobs[None],
        logp_old=inputs.inference_logprobs[None].detach(),
        mask=mask[None],
        length=mask.sum().clamp_min(1)[None],
        advantage=times * the_same(inputs.advantages, mask, "advantages"),
        weight=ones if weights is None else the_same(weights, mask, "loss_weights"),
        tau=ones * (torch.nan if tau is None else tau),
        mass=ones,
        group=torch.zeros(1, dtype=torch.long, device=mask.device),
    )
    log_ratio = batch.seq_log_ratio.detach()[0]
    metrics = {"log_ratio": log_ratio, "log_ratio_square": log_ratio**2}
    return LossOutputs(loss=total(method, batch).to(batch.logp.dtype), metrics=metrics)


def the_same(values: Tensor, mask: Tensor, name: str) -> Tensor:
    """[1] float64, the number that all tokens of a response share; 0 without tokens."""
    found = values[mask].double().unique()
    if len(found) > 1:
        raise UsageError(f"{name} differs between the tokens of a response; take orchestrator.algo.type = 'grpo'")
    return found if len(found) else found.new_zeros(1)


@cache
def build(name: str, tau: float | None, group: int | None, options: str) -> tuple[Objective, float]:
    """The objective, and its advantage over prime-rl's; once for each configuration."""
    given = {"norm": "tokens", **json.loads(options), **({} if tau is None else {"tau": tau})}
    objective = load_objective(name, **given)
    if hasattr(objective, "tau") and tau is None:
        raise UsageError(f"{name} got no tau; set it under [trainer.loss.kwargs], in reward units")
    facts, terms = traits(objective), added_terms(objective)
    lacks = {
        f"has norm '{given['norm']}', and prime-rl divides by the tokens of the batch; leave norm out": (
            objective.norm != "tokens"
        ),
        "compares responses, and prime-rl's losses see one": facts.whole_groups or facts.whole_batch,
        "reads a reference policy, which prime-rl has for its `ref_kl` loss only": facts.uses_reference,
        f"has {' and '.join(terms)}, which prime-rl's losses cannot add to a reward": bool(terms),
    }
    for reason, holds in lacks.items():
        if holds:
            raise UsageError(f"{name} {reason}")
    # both advantages on a group: with one number between them, at every size unless the size is given
    reward = torch.tensor([[1.0, 0.0, 0.25, 0.0], [0.0, 0.5, 0.75, 1.0]], dtype=torch.float64)
    times = []
    for size in (2, 4) if group is None else (group,):
        draws = reward.repeat(1, -(-size // 4))[:, :size]
        theirs = draws - draws.mean(1, keepdim=True)
        ours = objective.advantage(Groups(draws, torch.full_like(draws, 1 / size)))
        times += (ours / theirs)[theirs != 0].tolist()
    if max(times) - min(times) > 1e-9:
        remedy = "give group, or baseline = 'mean' or std = 'none' where the objective has it"
        raise UsageError(f"the advantage of {name} is not prime-rl's, the reward minus the mean of the group; {remedy}")
    return objective, times[0]
