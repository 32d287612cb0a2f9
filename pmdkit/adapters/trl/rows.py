"""Rows of TRL's rollout batch: credit for all of them, the loss of some, and metrics for the log.

TRL keeps a rollout batch as a dict of tensors, one entry per response, and cuts it into micro-batches by rows.
Nothing here imports TRL.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pmdkit.llm.mismatch import mismatch_metrics
from pmdkit.objectives import Batch, Groups, Objective, credit, total
from pmdkit.observe.metrics import expect

CARRIED = ("length", "advantage", "weight", "tau", "mass", "group")
PREFIX = "pmd_"
ROW = PREFIX + "row"  # the position of a row before TRL shuffles


def groups_of(reward: Tensor, size: int) -> Groups:
    """The groups of a rollout batch.

    Args:
        reward: [N] of all processes, prompt-major; NaN for a response without a verdict, which has mass 0.
        size: G, responses per prompt.
    """
    grouped = reward.double().view(-1, size)
    present = ~grouped.isnan()
    mass = present / present.sum(1, keepdim=True).clamp_min(1).double()
    return Groups(torch.where(present, grouped, 0.0), mass)


def credited(objective: Objective, groups: Groups, length: Tensor, width: int) -> dict[str, Tensor]:
    """The fields that each row carries to its loss, [N] each: length, advantage, weight, tau, mass, group.

    Args:
        objective: gives advantage, temperature and length rule.
        groups: of the whole rollout batch.
        length: [N] response tokens.
        width: generation budget, tokens.
    """
    mask = torch.arange(int(length.max()), device=length.device) < length[:, None]
    # in place of log-probabilities, which `credit` reads only for the `shape_reward` of a `Regulariser`
    nothing = torch.zeros((), dtype=torch.float64, device=length.device).expand(mask.shape)
    batch = credit(objective, groups, nothing, mask, width=width)
    return {PREFIX + name: getattr(batch, name) for name in CARRIED}


def response_mask(rows: Mapping[str, Any]) -> Tensor:
    """[n, T] boolean: tokens that the policy wrote, not padding and not what a tool returned."""
    mask: Tensor = rows["completion_mask"].bool()
    return mask & rows["tool_mask"].bool() if "tool_mask" in rows else mask


def batch_of(rows: Mapping[str, Any], logp: Tensor) -> Batch:
    """Some rows as the objectives' `Batch`.

    Args:
        rows: of a rollout batch, with the fields of `credited`. Without `old_per_token_logps` the policy is pi_old:
            TRL leaves them out if there is no update between a rollout and its loss.
        logp: [n, T] under the current policy, with gradient.
    """
    old = rows.get("old_per_token_logps")
    ratio = rows.get("importance_sampling_ratio")
    return Batch(
        logp=logp,
        logp_old=logp.detach() if old is None else old,
        mask=response_mask(rows) & (rows[PREFIX + "mass"] > 0)[:, None],
        correction=None if ratio is None else ratio[:, 0] if ratio.shape[1] == 1 else ratio,
        **{name: rows[PREFIX + name] for name in CARRIED},
    )


def rows_loss(objective: Objective, batch: Batch, accumulation: int, per_rollout: int, processes: int) -> Tensor:
    """Scalar float64: these rows' share of their ministep's loss, as TRL expects it from one micro-batch.

    Over the micro-batches and processes of a ministep, the shares add up to pmdkit's `total`: the weights average over
    the P prompts of the rollout batch, and a ministep averages over its own.

    Args:
        objective: the loss.
        batch: the rows.
        accumulation: micro-batches of this process in this ministep.
        per_rollout: micro-batches of this process in a rollout batch.
        processes: number of processes, whose gradients are averaged afterwards, not added.
    """
    return total(objective, batch) * (per_rollout / accumulation * processes)


def in_order(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The micro-batches with rows in the order before TRL's shuffle: groups are contiguous, prompt by prompt.

    The shuffle spreads every prompt over all ministeps, so that none of them would average over its own prompts.
    """
    order = torch.cat([part[ROW] for part in parts]).argsort()
    joined = {
        name: torch.cat([part[name] for part in parts])[order].chunk(len(parts)) if value.ndim else [value] * len(parts)
        for name, value in parts[0].items()
    }
    return [{name: joined[name][k] for name in joined} for k in range(len(parts))]


def rollout_metrics(groups: Groups, passed: float) -> dict[str, float]:
    """Metrics of the rewards: `reward_mean`, `pass_rate`, `zero_variance_groups` and `unscored`."""
    scored = groups.present.any(1)
    top = torch.where(groups.present, groups.reward, -torch.inf).max(1).values
    low = torch.where(groups.present, groups.reward, torch.inf).min(1).values
    return {
        "reward_mean": expect(groups.reward, groups.mass, scored),
        "pass_rate": expect((groups.reward > passed).double(), groups.mass, scored),
        "zero_variance_groups": int((scored & (top == low)).sum()),
        "unscored": int((~groups.present).sum()),
    }


def engine_mismatch(sampled: Tensor, batch: Batch) -> dict[str, float]:
    """Mean distance of the engine's log-probabilities [n, T] from the trainer's, nats: per token and per response.

    For the micro-batch of this process. vLLM gives NaN for a token that it did not score; such tokens are left out.
    """
    known = batch.mask & ~sampled.isnan()
    found = mismatch_metrics(torch.where(known, batch.logp_old - sampled, 0.0), known)
    return {name: found[name] for name in ("mismatch_mean", "mismatch_response")}


class RolloutRange:
    """Smallest and largest log-ratio of a response over the updates on a rollout batch, measured before each update."""

    def __init__(self) -> None:
        self.low: Tensor | None = None
        self.high: Tensor | None = None

    def add(self, batch: Batch) -> None:
        """Add a micro-batch."""
        change = batch.seq_log_ratio.detach()
        low, high = change.min(), change.max()
        self.low = low if self.low is None else torch.minimum(self.low, low)
        self.high = high if self.high is None else torch.maximum(self.high, high)

    def taken(self, accelerator: Any) -> dict[str, float]:
        """The range over all processes, nats; starts a new one."""
        assert self.low is not None
        assert self.high is not None
        found = accelerator.gather(torch.stack([self.low, -self.high])[None]).min(0).values
        self.low = self.high = None
        return {"log_ratio_min": float(found[0]), "log_ratio_max": -float(found[1])}
