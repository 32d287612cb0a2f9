"""Whose log-probabilities are pi_old: the engine's, or the trainer's own."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from pmdkit.llm.importance_weights import importance_weights
from pmdkit.llm.mismatch import mismatch_metrics
from pmdkit.loop import Rollouts

SAMPLE = 32  # responses that are rescored each step if the engine's numbers are used


def resolve_old_logprobs(
    rollouts: Rollouts, score: Callable[[Rollouts], Tensor], old: str, correction: str, cap: float
) -> tuple[Rollouts, dict[str, float]]:
    """The rollouts with pi_old and importance weights as asked for, and the mismatch of engine and trainer.

    Args:
        rollouts: with the engine's log-probabilities as logp_old.
        score: [n, T] the trainer's log-probabilities under the current policy, for some rollouts.
        old: "rollout" takes the engine's numbers and scores a sample; "recompute" scores all and takes the trainer's.
        correction: "none", or the weights pi_trainer / pi_engine "token-truncate", "token-mask", "sequence-truncate"
            or "sequence-mask". A truncated weight is at most `cap`; a masked one is 0 outside 1 / cap to cap.
        cap: bound on a weight, above 1.

    Returns:
        Rollouts, with `correction` [N, T] or [N] where asked for; and `mismatch`: per token, its mean and largest
        absolute value in nats and its mean with sign, an estimate of KL(engine || trainer); per response, the mean
        absolute sum.
    """
    with torch.no_grad():
        if old == "rollout" and correction == "none":
            prompts, size = rollouts.mass.shape
            some = rollouts.part(slice(0, min(prompts, max(1, SAMPLE // size))))
            return rollouts, mismatch_metrics(score(some) - some.logp_old, some.mask)
        trainer = score(rollouts)
        # log pi_trainer - log pi_engine
        difference = torch.where(rollouts.mask, trainer - rollouts.logp_old, 0.0)
        measured = mismatch_metrics(difference, rollouts.mask)
        weights = None if correction == "none" else importance_weights(difference, rollouts.mask, correction, cap)
        taken = trainer.to(rollouts.logp_old.dtype) if old == "recompute" else rollouts.logp_old
        return replace(rollouts, logp_old=taken, correction=weights), measured
