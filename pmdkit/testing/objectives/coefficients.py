"""All that a response-level objective asks of the network is one number per response."""

import torch

from pmdkit.objectives.credit import coefficient
from pmdkit.objectives.vocabulary import Objective
from pmdkit.testing.objectives.cases import case, same, value_and_gradient


def check_coefficient(objective: Objective, seed: int = 0) -> str | None:
    """d loss / d log pi(y|x) from the batch folded to one token is what autograd gives at every token of y."""
    batch = case(seed).batch(objective)
    numbers = coefficient(objective, batch)
    if numbers is None:
        return "does not apply: the loss is per token"
    _, gradient = value_and_gradient(objective, batch)
    expected = torch.where(batch.mask, numbers[:, None], 0.0)
    same(gradient, expected, "the folded batch has another gradient; use batch.length, never the number of columns")
    return None
