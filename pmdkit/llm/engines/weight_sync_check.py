"""Does the engine have the new weights? Both sides score the same fixed texts after every publish."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from pmdkit.errors import ComponentDied
from pmdkit.llm.engines.base import ANY_RESPONSES, Engine, EngineLost, ResponseCheck, Sampling, Tokens
from pmdkit.randomness import derive

SYNC_COLUMNS = ("canary_mean", "canary_max", "canary_own")  # columns of metrics.jsonl
SYNC_TOKENS = 16  # that the engine writes for each prompt
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.05}  # nats, mean over typical tokens: kernels that differ in rounding only

ExpectedLogp = Sequence[Tensor]
"[T_n] log-probabilities of each fixed text, by the trainer, under the weights that are published."


@dataclass(frozen=True)
class WeightSyncCheck:
    """Fixed texts that show whether the engine has the trainer's weights.

    Two differences are measured. Engine and trainer score the fixed texts: this reveals other weights, a lost layer or
    another layout. The engine also answers the prompts and scores its answers: this reveals stale keys and values.

    Attributes:
        prompts, responses: tokens.
        tolerance: nats, for the mean absolute difference over `typical` tokens. In float32 it reveals a lost update;
            in bfloat16, whose rounding is coarser than an update, only gross errors: the version reveals old weights.
    """

    prompts: Sequence[Tokens]
    responses: Sequence[Tokens]
    tolerance: float

    def check(self, engine: Engine, expected: ExpectedLogp, form: ResponseCheck = ANY_RESPONSES) -> dict[str, float]:
        """The differences of an engine in nats: `canary_mean`, `canary_max` and `canary_own`.

        Raises:
            ComponentDied: one of them is above the tolerance, or not a number.
        """
        read = absolute_difference(engine.score(self.prompts, self.responses), expected)
        seeds = np.array([derive(0, "canary", p) for p in range(len(self.prompts))], dtype=np.uint64)
        drawn = engine.generate(self.prompts, 1, seeds, Sampling(SYNC_TOKENS))
        form.check(drawn, len(self.prompts), 1, Sampling(SYNC_TOKENS))
        rows = list(zip(drawn.tokens, drawn.logp, drawn.mask, strict=True))
        scored = engine.score(self.prompts, [tokens[on].tolist() for tokens, _, on in rows])
        own = absolute_difference(scored, [logp[on] for _, logp, on in rows])
        found = dict(zip(SYNC_COLUMNS, (read.mean().item(), read.max().item(), own.mean().item()), strict=True))
        if not typical(read) <= self.tolerance:  # false for NaN too
            raise ComponentDied(
                f"engine and trainer disagree on {len(read)} fixed tokens by {typical(read):.1e} nats on average and "
                f"{read.max():.1e} at most after publishing version {engine.version}; at most {self.tolerance:.0e} is "
                "expected: the engine has other weights than the trainer. Check rollout.engine, the versions of its "
                "library and model.dtype, or raise rollout.canary_tolerance"
            )
        if not typical(own) <= self.tolerance:
            raise ComponentDied(
                f"the engine writes {len(own)} tokens with log-probabilities that differ by {typical(own):.1e} nats on "
                f"average from its own reading of them, version {engine.version}; at most {self.tolerance:.0e} is "
                "expected: something computed with older weights is still used, rows are swapped, or it draws "
                "at another temperature or top_p than it is asked to"
            )
        return found


def typical(difference: Tensor) -> float:
    """The mean without the largest sixteenth of the tokens; NaN if any is not finite.

    In a mixture rounding can send a token to another expert and move it by nats, and a few of those are no other
    weights. Lost layers move all tokens, and one swapped row of eight is an eighth of them.
    """
    kept = difference.sort().values[: len(difference) - len(difference) // 16]
    return kept.mean().item() if bool(torch.isfinite(difference).all()) else torch.nan


def absolute_difference(one: Sequence[Tensor], other: Sequence[Tensor]) -> Tensor:
    """[tokens] absolute differences, float64."""
    found, wanted = [len(x) for x in one], [len(x) for x in other]
    if found != wanted:
        raise EngineLost(f"the engine scores texts of {wanted} tokens with {found} numbers; expected one per token")
    return (torch.cat([x.cpu().double() for x in one]) - torch.cat([x.cpu().double() for x in other])).abs()
