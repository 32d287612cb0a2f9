"""Memory must not change mathematics: however a batch is split, the pieces add up to it."""

import torch

from pmdkit.objectives.traits import traits
from pmdkit.objectives.vocabulary import Objective
from pmdkit.testing.objectives.cases import case, same, value_and_gradient
from pmdkit.testing.objectives.order import permutation


def check_micro_batches(objective: Objective, seed: int = 0) -> str | None:
    """The sum over micro-batches is the whole: single rows, odd pieces, or whole groups where the objective says so."""
    it = case(seed)
    batch = it.batch(objective)
    prompts, size = it.groups.reward.shape
    value, gradient = value_and_gradient(objective, batch)
    whole = traits(objective).whole_groups
    units = torch.arange(prompts * size).reshape(prompts, size) if whole else torch.arange(prompts * size)[:, None]
    units = units[permutation(len(units), seed)]
    remedy = "" if whole else ", or state whole_groups = True if rows of a group are compared"
    for count in {1, 2, 3, len(units)}:
        pieces = [piece.flatten() for piece in units.tensor_split(count)]
        values, gradients = zip(*(value_and_gradient(objective, batch[piece]) for piece in pieces), strict=True)
        summed = torch.stack(values).sum()
        same(summed, value, f"{count} micro-batches do not add up to the loss; do not reduce{remedy}")
        together = torch.zeros_like(gradient)
        for piece, part in zip(pieces, gradients, strict=True):
            together[piece] = part
        same(together, gradient, f"{count} micro-batches do not add up to the gradient; do not reduce{remedy}")
    return None
