"""Engine versus trainer: whose log-probabilities pi_old are, how far they differ, and the weight-sync check.

An engine uses other kernels than the trainer. PMD regresses a sum over the response, so small differences per
token add up to an error in the target. `WeightSyncCheck` asks both for the same numbers after every publish.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from pmdkit.errors import ComponentDied
from pmdkit.llm.engines.base import ANY_RESPONSES, Engine, EngineLost, ResponseCheck, Sampling, Tokens
from pmdkit.loop import Rollouts
from pmdkit.randomness import derive

SAMPLE = 32  # responses that are rescored each step if the engine's numbers are used

# The monitor of the mismatch.
WARN_BIAS, MAX_BIAS = 0.01, 0.10  # of the range of the target
MAX_BIAS_STEPS = 3  # in a row above MAX_BIAS: one may hold the few responses where rounding chose another expert
MAX_KL = 0.015  # nats per token: bfloat16 rounding reaches as much in absolute value, and far less with its sign

# The check of the weights.
SYNC_COLUMNS = ("canary_mean", "canary_max", "canary_own")  # columns of metrics.jsonl
SYNC_TOKENS = 16  # that the engine writes for each prompt
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.05}  # nats, mean over tokens: kernels that differ in rounding only

ExpectedLogp = Sequence[Tensor]
"[T_n] log-probabilities of each fixed text, by the trainer, under the weights that are published."


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


def importance_weights(difference: Tensor, mask: Tensor, correction: str, cap: float) -> Tensor:
    """Importance weights of the responses, data without gradient.

    Args:
        difference: [N, T] log pi_trainer / pi_engine, 0 off the mask.
        mask: [N, T].
        correction, cap: as in `resolve_old_logprobs`.

    Returns:
        [N, T] for the token kinds, [N] for the sequence kinds.
    """
    level, rule = correction.split("-")
    # w = pi_trainer / pi_engine, of a token or of the whole response
    log_weight = difference.double() if level == "token" else difference.double().sum(1)
    if rule == "truncate":
        return log_weight.exp().clamp_max(cap)
    inside = log_weight.abs() <= torch.log(torch.tensor(cap, dtype=torch.float64))
    return torch.where(inside, log_weight.exp(), 0.0)


def mismatch_metrics(difference: Tensor, mask: Tensor) -> dict[str, float]:
    """How far trainer and engine differ on the same tokens under the same weights, nats."""
    on = torch.where(mask, difference, 0.0).double()
    return {
        "mismatch_mean": float(on.abs().sum() / mask.sum()),
        "mismatch_max": float(on.abs().max()),
        "mismatch_response": float(on.sum(1).abs().mean()),
        "mismatch_kl": float(-on.sum() / mask.sum()),
    }


class MismatchMonitor:
    r"""Judges the mismatch of each step by its effect on the regression target.

    PMD fits $\tau \log \pi / \pi_{old}$ to rewards less a baseline. Where the engine's $\log \pi_{old}$ is off, so is
    the target, by `target_bias` of its range:

    $$ \frac{\tau\, E\,|\sum_t (\log \pi_t^{trainer} - \log \pi_t^{engine})|}{r_{max} - r_{min}} $$

    Above WARN_BIAS it warns, once; above MAX_BIAS in MAX_BIAS_STEPS steps in a row the run ends. Under
    `rollout.old = "recompute"` the target has the trainer's numbers and no such bias. `mismatch_kl` answers another
    question, whether the engine draws from the distribution that the trainer scores: above MAX_KL it warns, once.

    Args:
        span: reward of a right answer less that of a wrong one.
        in_target: pi_old is the engine's.
    """

    def __init__(self, span: float, in_target: bool) -> None:
        self.span = span
        self.in_target = in_target
        self.step = -1  # the last one that was judged
        self.above = 0  # steps in a row above MAX_BIAS, the last one included
        self.warned: set[str] = set()

    def check(
        self, step: int, mismatch: Mapping[str, float], tau: Tensor, warn: Callable[[str], None]
    ) -> dict[str, float]:
        """Judge a step, once; returns `target_bias` where the engine's numbers are in the target.

        Args:
            step: of the run; one that was already judged is skipped.
            mismatch: as `mismatch_metrics` gives it; empty where it was not measured.
            tau: [n] temperatures of responses, NaN for objectives without one.
            warn: shows a sentence to the user.

        Raises:
            ComponentDied: above MAX_BIAS in MAX_BIAS_STEPS steps in a row.
        """
        if step == self.step or not mismatch:
            return {}
        self.step = step
        kl = mismatch["mismatch_kl"]
        if not abs(kl) <= MAX_KL:
            self.warn_once(
                "kl",
                f"engine log-probabilities differ from the trainer's by {kl:+.3f} nats per token on average; rounding "
                f"explains less than {MAX_KL}: the engine has other weights, another temperature, or a top_p below 1",
                warn,
            )
        if not self.in_target or bool(torch.isnan(tau).all()):
            return {}
        # tau E|sum_t difference_t| / (r_max - r_min)
        bias = tau.nanmean().item() * mismatch["mismatch_response"] / self.span
        self.above = 0 if bias <= MAX_BIAS else self.above + 1
        finding = (
            f"the log-probabilities of engine and trainer differ by {mismatch['mismatch_response']:.2g} nats in a "
            f"response, which moves its target by {bias:.1%} of the range of rewards"
        )
        advice = "set rollout.old = 'recompute', or check rollout.engine and model.dtype"
        if self.above == MAX_BIAS_STEPS:
            raise ComponentDied(
                f"{finding}, above {MAX_BIAS:.0%} in {MAX_BIAS_STEPS} steps in a row; the last checkpoint is intact: "
                f"{advice}"
            )
        if not bias <= WARN_BIAS:
            self.warn_once("bias", f"{finding}; at most {WARN_BIAS:.0%} is expected: {advice}", warn)
        return {"target_bias": bias}

    def warn_once(self, what: str, sentence: str, warn: Callable[[str], None]) -> None:
        """Warn, once in a run."""
        if what not in self.warned:
            self.warned.add(what)
            warn(sentence)


@dataclass(frozen=True)
class WeightSyncCheck:
    """Fixed texts, the canary, that show whether the engine has the trainer's weights.

    Two differences are measured. Engine and trainer score the fixed texts: this reveals other weights, a lost layer or
    another layout. The engine also answers the prompts and scores its answers: this reveals stale keys and values.

    Attributes:
        prompts, responses: tokens.
        tolerance: of the mean absolute difference over tokens, nats. In float32 a lost update shows; in bfloat16 only
            gross errors do: an update of 1e-6 is below its rounding, and only the version reveals old weights.
    """

    prompts: Sequence[Tokens]
    responses: Sequence[Tokens]
    tolerance: float

    def check(self, engine: Engine, expected: ExpectedLogp, form: ResponseCheck = ANY_RESPONSES) -> dict[str, float]:
        """The differences of an engine in nats: `canary_mean`, `canary_max` and `canary_own`.

        Raises:
            ComponentDied: one of them is above the tolerance, or not a number.
            EngineLost: an answer does not have the form.
        """
        read = absolute_difference(engine.score(self.prompts, self.responses), expected)
        seeds = np.array([derive(0, "canary", p) for p in range(len(self.prompts))], dtype=np.uint64)
        drawn = engine.generate(self.prompts, 1, seeds, Sampling(SYNC_TOKENS))
        form.check(drawn, len(self.prompts), 1, Sampling(SYNC_TOKENS))
        rows = list(zip(drawn.tokens, drawn.logp, drawn.mask, strict=True))
        scored = engine.score(self.prompts, [tokens[on].tolist() for tokens, _, on in rows])
        own = absolute_difference(scored, [logp[on] for _, logp, on in rows])
        found = dict(zip(SYNC_COLUMNS, (read.mean().item(), read.max().item(), own.mean().item()), strict=True))
        if not found["canary_mean"] <= self.tolerance:  # false for NaN too
            raise ComponentDied(
                f"engine and trainer disagree on {len(read)} fixed tokens by {read.mean():.1e} nats on average and "
                f"{read.max():.1e} at most after publishing version {engine.version}; at most {self.tolerance:.0e} is "
                "expected: the engine has other weights than the trainer. Check rollout.engine, the versions of its "
                "library and model.dtype, or raise rollout.canary_tolerance"
            )
        if not found["canary_own"] <= self.tolerance:
            raise ComponentDied(
                f"the engine writes {len(own)} tokens with log-probabilities that differ by {own.mean():.1e} nats on "
                f"average from its own reading of them, version {engine.version}; at most {self.tolerance:.0e} is "
                "expected: something computed with older weights is still used, rows are swapped, or it draws "
                "at another temperature or top_p than it is asked to"
            )
        return found


def absolute_difference(one: Sequence[Tensor], other: Sequence[Tensor]) -> Tensor:
    """[tokens] absolute differences, float64."""
    found, wanted = [len(x) for x in one], [len(x) for x in other]
    if found != wanted:
        raise EngineLost(f"the engine scores texts of {wanted} tokens with {found} numbers; expected one per token")
    return (torch.cat([x.cpu().double() for x in one]) - torch.cat([x.cpu().double() for x in other])).abs()
