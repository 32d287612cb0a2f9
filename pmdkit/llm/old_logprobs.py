"""Choose pi_old, the engine's log-probabilities or the trainer's own, and weight rows by the ratio of the two."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from pmdkit.llm.mismatch import mismatch_metrics
from pmdkit.llm.rollouts import EngineRollouts
from pmdkit.loop import Rollouts

SAMPLE = 32  # responses that are rescored each step if the engine's numbers are used, with a lag too


def resolve_old_logprobs(
    rollouts: EngineRollouts, score: Callable[[Rollouts], Tensor], old: str, correction: str, cap: float
) -> EngineRollouts:
    """The rollouts with the requested pi_old and importance weights, and the mismatch of engine and trainer.

    Args:
        rollouts: with the engine's log-probabilities as logp_old.
        score: [n, T] the trainer's log-probabilities under the current policy, for some rollouts.
        old: "rollout" takes the engine's numbers, "recompute" the trainer's. "rollout" with "none" scores a sample.
        correction: "none", or the weights pi_trainer / pi_engine "token-truncate", "token-mask", "sequence-truncate"
            or "sequence-mask". A truncated weight is at most `cap`; a masked one is 0 outside 1 / cap to cap.
        cap: bound on a weight, above 1.
    """
    with torch.no_grad():
        if old == "rollout" and correction == "none":
            # The engine's numbers are pi_old as they are: one forward pass over a few responses only measures them.
            return replace(rollouts, measured={**rollouts.measured, **mismatch_of_sample(rollouts, score)})
        trainer = score(rollouts)
        found = mismatch_metrics(trainer, rollouts.logp_old, rollouts.mask)
        # log pi_trainer - log pi_engine. A correction keeps the engine's pi_old in the objective and puts the ratio in
        # the row's weight; "recompute" puts the trainer's pi_old in the objective. Both together are allowed: the draws
        # are still the engine's.
        weights = None
        if correction != "none":
            difference = torch.where(rollouts.mask, trainer.double() - rollouts.logp_old, 0.0)
            weights = importance_weights(difference, correction, cap)
        return replace(
            rollouts,
            logp_old=trainer.to(rollouts.logp_old.dtype) if old == "recompute" else rollouts.logp_old,
            logp_engine=rollouts.logp_old if old == "recompute" else None,
            correction=weights,
            measured={**rollouts.measured, **found},
        )


def mismatch_of_sample(rollouts: EngineRollouts, score: Callable[[Rollouts], Tensor]) -> dict[str, float]:
    """`mismatch_metrics` of the first SAMPLE responses under the current policy."""
    prompts, size = rollouts.mass.shape
    some = rollouts.part(slice(0, min(prompts, max(1, SAMPLE // size))))
    return mismatch_metrics(score(some), some.logp_old, some.mask)


def importance_weights(difference: Tensor, correction: str, cap: float) -> Tensor:
    """[N, T] weights for the token kinds of `resolve_old_logprobs`, [N] for the sequence kinds; no gradient.

    `difference` is [N, T] log pi_trainer / pi_engine, 0 off the mask.
    """
    level, rule = correction.split("-")
    # w = pi_trainer / pi_engine, of a token or of the whole response. E_engine[w f] = E_trainer[f]; the variance of the
    # whole response's weight grows with its length, which is what the cap is for.
    log_weight = difference.double() if level == "token" else difference.double().sum(1)
    if rule == "truncate":
        return log_weight.exp().clamp_max(cap)
    # A mask drops rows where one side is sure and the other is not; truncation keeps them, with bias.
    inside = log_weight.abs() <= torch.log(torch.tensor(cap, dtype=torch.float64))
    return torch.where(inside, log_weight.exp(), 0.0)
