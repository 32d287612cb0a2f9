"""The gradient that is followed belongs to the loss that is shown."""

from dataclasses import replace

import torch

from pmdkit.objectives.credit import total
from pmdkit.objectives.traits import traits
from pmdkit.objectives.vocabulary import Objective
from pmdkit.testing.objectives.cases import case


def check_derivative(objective: Objective, seed: int = 0) -> str | None:
    """Autograd agrees with finite differences in float64, at a random point: kinks of a clip have measure zero."""
    if traits(objective).stop_gradient:
        return "does not apply: stop_gradient is True"
    batch = case(seed, prompts=2, size=3, tokens=3).batch(objective)
    logp = batch.logp.detach().clone().requires_grad_()
    agrees = torch.autograd.gradcheck(
        lambda logp: total(objective, replace(batch, logp=logp)), (logp,), eps=1e-6, atol=1e-6, raise_exception=False
    )
    assert agrees, "autograd and finite differences disagree; a factor held back by detach needs stop_gradient = True"
    return None
