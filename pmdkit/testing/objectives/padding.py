"""What lies off the mask is never read."""

from dataclasses import replace

import torch
from torch import Tensor

from pmdkit.objectives.vocabulary import Objective
from pmdkit.testing.objectives.cases import case, same, value_and_gradient


def check_padding(objective: Objective, seed: int = 0) -> str | None:
    """Three more columns of padding, and NaN or infinities off the mask, change neither the loss nor its gradient."""
    it = case(seed)
    value, gradient = value_and_gradient(objective, it.batch(objective))
    wide = torch.nn.functional.pad(it.mask, (0, 3))
    for junk in (0.0, torch.nan, torch.inf, -torch.inf):

        def pad(x: Tensor, junk: float = junk) -> Tensor:
            return torch.where(wide, torch.nn.functional.pad(x, (0, 3)), junk)

        padded = replace(it, logp=pad(it.logp), logp_old=pad(it.logp_old), logp_ref=pad(it.logp_ref), mask=wide)
        padded_value, padded_gradient = value_and_gradient(objective, padded.batch(objective))
        remedy = "mask by torch.where, not by a product, and never divide by the number of columns"
        same(padded_value, value, f"padding with {junk} changes the loss; {remedy}")
        expected = torch.nn.functional.pad(gradient, (0, 3))
        same(padded_gradient, expected, f"padding with {junk} changes the gradient; {remedy}")
    return None
