"""Numbers of a rollout batch under pmdkit's names, for TRL's log."""

from typing import Any

import torch
from torch import Tensor

from pmdkit.llm.provenance import mismatch
from pmdkit.objectives import Batch, Groups
from pmdkit.observe.meter import expect


def rollout_metrics(groups: Groups, passed: float) -> dict[str, float]:
    """Of the rewards: `reward_mean`, `pass_rate`, `zero_variance_groups` and `unscored`."""
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
    """How far the engine's log-probabilities [n, T] are from the trainer's, nats: per token and per response, means.

    Of the micro-batch of this process. vLLM gives NaN for a token that it did not score; it is left out.
    """
    known = batch.mask & ~sampled.isnan()
    found = mismatch(torch.where(known, batch.logp_old - sampled, 0.0), known)
    return {name: found[name] for name in ("mismatch_mean", "mismatch_response")}


class RolloutRange:
    """Smallest and largest log-ratio of a response over the updates on a rollout batch, each before its own update."""

    def __init__(self) -> None:
        self.low: Tensor | None = None
        self.high: Tensor | None = None

    def add(self, batch: Batch) -> None:
        """Take in a micro-batch."""
        change = batch.seq_log_ratio.detach()
        low, high = change.min(), change.max()
        self.low = low if self.low is None else torch.minimum(self.low, low)
        self.high = high if self.high is None else torch.maximum(self.high, high)

    def taken(self, accelerator: Any) -> dict[str, float]:
        """Over all processes, nats; and begin anew."""
        assert self.low is not None
        assert self.high is not None
        found = accelerator.gather(torch.stack([self.low, -self.high])[None]).min(0).values
        self.low = self.high = None
        return {"log_ratio_min": float(found[0]), "log_ratio_max": -float(found[1])}
