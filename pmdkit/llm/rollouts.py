"""Rollouts of a language model: the loop's fields, and measurements taken during generation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from pmdkit.errors import ComponentDied
from pmdkit.llm.engines.base import Responses
from pmdkit.loop import Rollouts
from pmdkit.randomness import derive


@dataclass(frozen=True)
class EngineRollouts(Rollouts):
    """Rollouts that an engine wrote. Observers of the loop read the measurements here.

    Attributes:
        measured: columns of metrics.jsonl: the mismatch of engine and trainer, results of the weight-sync check, and
            how prompts were replaced.
        logp_engine: [N, T] the engine's log-probabilities where pi_old is the trainer's.
        versions: [N, T] int32, of the weights that drew each token, where they change in flight.
        changes: when they changed: rank, tokens written for this step, version.
    """

    measured: Mapping[str, float] = field(default_factory=dict)
    logp_engine: Tensor | None = None
    versions: Tensor | None = None
    changes: Sequence[tuple[int, int, int]] = ()

    def part(self, prompts: slice) -> "EngineRollouts":
        """The rollouts of some prompts."""
        found = super().part(prompts)
        assert isinstance(found, EngineRollouts)
        size = self.mass.shape[1]
        rows = slice(prompts.start * size, prompts.stop * size)
        logp_engine, versions = (None if x is None else x[rows] for x in (self.logp_engine, self.versions))
        return replace(found, logp_engine=logp_engine, versions=versions)


def make_rollouts(prompts: Tensor, seed: int, responses: Responses, version: int, width: int) -> EngineRollouts:
    """Rollouts from an engine's responses; raises ComponentDied unless weights of `version` wrote them."""
    if responses.version != version:
        raise ComponentDied(
            f"the engine answered with weights of version {responses.version}; expected {version}: "
            "its weights were not updated, restart it and go on with --resume"
        )
    group = len(responses.mask) // len(prompts)
    return EngineRollouts(
        prompts=prompts,
        responses=responses.tokens.cpu(),
        logp_old=responses.logp.cpu(),
        mask=responses.mask.cpu(),
        mass=torch.full((len(prompts), group), 1.0 / group, dtype=torch.float64),
        sampled=True,
        seed=seed,
        version=responses.version,
        width=width,
    )


def response_tokens(rollouts: Rollouts) -> list[Tensor]:
    """[T_n] the tokens of each of N responses, views without padding; an environment's between two turns included."""
    mask = rollouts.mask
    # `extent`, without a 64-bit number for every place of the rectangle
    lengths = torch.where(mask.any(1), mask.shape[1] - mask.flip(1).byte().argmax(1), 0).tolist()
    return [row[:length] for row, length in zip(rollouts.responses, lengths, strict=True)]


def row_seeds(prompts: Tensor, group: int, seed: int) -> np.ndarray:
    """[P * G] seeds of responses, from the step's seed, prompt number and k; k counts on for a repeated prompt."""
    seen: dict[int, int] = {}
    seeds = []
    for number in prompts.tolist():
        first = seen.get(number, 0)
        seen[number] = first + group
        seeds += [derive(seed, number, k) for k in range(first, first + group)]
    return np.array(seeds, dtype=np.uint64)
