"""A ministep averages over its own prompts, as if they had been the whole batch."""

import torch

from pmdkit.objectives.credit import cut, parts
from pmdkit.objectives.vocabulary import Objective
from pmdkit.testing.objectives.cases import case, same, value_and_gradient


def check_ministeps(objective: Objective, seed: int = 0) -> str | None:
    """Each part equals the step on its prompts alone, and the parts, weighted by their prompts, average to the whole.

    Under norm "tokens" a part keeps the tokens per prompt of the whole batch, so only the second statement holds.
    """
    it = case(seed, prompts=5)
    batch = it.batch(objective)
    prompts, size = it.groups.reward.shape
    value, gradient = value_and_gradient(objective, batch)
    for count in (1, 2, 3, prompts):
        mean = torch.zeros_like(value)
        for run in parts(prompts, count):
            part_value, part_gradient = value_and_gradient(objective, cut(batch, run, prompts, size))
            share = (run.stop - run.start) / prompts
            mean += share * part_value
            rows = slice(run.start * size, run.stop * size)
            same(
                share * part_gradient,
                gradient[rows],
                "a ministep is not its share of the whole; do not reduce over rows",
            )
            if objective.norm != "tokens":
                keep = torch.zeros(prompts, size, dtype=torch.bool)
                keep[run] = True
                alone, _ = value_and_gradient(objective, it.rows(keep).batch(objective))
                same(part_value, alone, "a ministep is not the mean over its own prompts; do not reduce over rows")
        same(mean, value, "ministeps do not average to the whole step")
    return None
