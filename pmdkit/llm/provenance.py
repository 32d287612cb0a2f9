"""Whose log-probabilities pi_old are: the engine's or the trainer's; how far they differ; weights that correct for it.

An engine computes with other kernels than the trainer. PMD regresses a sum over the response, so small differences per
token add up to an error of the target.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from pmdkit.learner import Rollouts

Score = Callable[[Rollouts], Tensor]
SAMPLE = 32  # responses that are scored again each step where the engine's numbers are taken


def settled(
    rollouts: Rollouts, score: Score, old: str, correction: str, cap: float
) -> tuple[Rollouts, dict[str, float]]:
    """The rollouts with pi_old and importance weights as asked for, and the mismatch of engine and trainer.

    Args:
        rollouts: with the engine's log-probabilities as logp_old.
        score: [n, T] of the trainer under the present policy, for some rollouts.
        old: "rollout" takes the engine's numbers and scores a sample; "recompute" scores everything and takes those.
        correction: "none", or the weights pi_trainer / pi_engine "token-truncate", "token-mask", "sequence-truncate"
            or "sequence-mask". A truncated weight is `cap` at most; a masked one is 0 outside 1 / cap to cap.
        cap: of a weight, above 1.

    Returns:
        Rollouts, with `correction` [N, T] or [N] where asked for; and `mismatch`: per token, its mean and largest
        absolute value in nats and its mean with sign, an estimate of KL(engine || trainer); per response, the mean
        absolute sum.
    """
    with torch.no_grad():
        if old == "rollout" and correction == "none":
            prompts, size = rollouts.mass.shape
            some = rollouts.part(slice(0, min(prompts, max(1, SAMPLE // size))))
            return rollouts, mismatch(score(some) - some.logp_old, some.mask)
        trainer = score(rollouts)
        difference = torch.where(rollouts.mask, trainer - rollouts.logp_old, 0.0)
        measured = mismatch(difference, rollouts.mask)
        weights = None if correction == "none" else importance(difference, rollouts.mask, correction, cap)
        taken = trainer.to(rollouts.logp_old.dtype) if old == "recompute" else rollouts.logp_old
        return replace(rollouts, logp_old=taken, correction=weights), measured


def importance(difference: Tensor, mask: Tensor, correction: str, cap: float) -> Tensor:
    """Importance weights of the responses, data without gradient.

    Args:
        difference: [N, T] log pi_trainer / pi_engine, 0 off the mask.
        mask: [N, T].
        correction, cap: as in `settled`.

    Returns:
        [N, T] for the token kinds, [N] for the sequence kinds.
    """
    level, rule = correction.split("-")
    log_weight = difference.double() if level == "token" else difference.double().sum(1)
    if rule == "truncate":
        return log_weight.exp().clamp_max(cap)
    inside = log_weight.abs() <= torch.log(torch.tensor(cap, dtype=torch.float64))
    return torch.where(inside, log_weight.exp(), 0.0)


def mismatch(difference: Tensor, mask: Tensor) -> dict[str, float]:
    """How far trainer and engine differ on the same tokens under the same weights, nats."""
    on = torch.where(mask, difference, 0.0).double()
    return {
        "mismatch_mean": float(on.abs().sum() / mask.sum()),
        "mismatch_max": float(on.abs().max()),
        "mismatch_response": float(on.sum(1).abs().mean()),
        "mismatch_kl": float(-on.sum() / mask.sum()),
    }
