"""An objective that is asked for its coefficients row by row, as log-probabilities of whole responses become known.

Who asks, and in which order, is fused.py.
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from pmdkit.errors import UsageError
from pmdkit.objectives import Objective, coefficient, total
from pmdkit.objectives.traits import traits
from pmdkit.objectives.vocabulary import Batch


class Asked:
    """An objective that is asked for loss and coefficients once log-probabilities of whole responses are known."""

    def __init__(self, objective: Objective, batch: Batch, states: Tensor) -> None:
        folded = batch.folded()
        given = {field.name: getattr(folded, field.name) for field in fields(folded)}
        # beside the states, so that an accelerator is never waited for
        here: dict[str, Any] = {name: None if x is None else x.to(states.device) for name, x in given.items()}
        self.batch = Batch(**here)
        self.objective = objective
        self.loss = torch.zeros((), dtype=torch.float64, device=states.device)

    def bounds(self) -> list[int]:
        """Where the units start, and N: rows whose coefficients need nobody else, a response or a whole group."""
        count = len(self.batch.group)
        if not traits(self.objective).whole_groups:
            return list(range(count + 1))
        ids, sizes = torch.unique_consecutive(self.batch.group, return_counts=True)
        if len(ids) != len(torch.unique(ids)):
            raise UsageError("rows of a group stand apart; expected the responses to a prompt one after another")
        return [0, *sizes.cumsum(0).tolist()]

    def __call__(self, rows: slice, logp: Sequence[Tensor]) -> Tensor:
        """[n] coefficients of some rows, from the [T] of each; their loss is added up."""
        sums = torch.stack([row.double().sum() for row in logp])[:, None]  # in float32 they cost 1e-4 nats
        batch = replace(self.batch[rows], logp=sums)
        numbers = coefficient(self.objective, batch)
        if numbers is None:
            raise UsageError("the loss is per token; expected one number per response: take response_logp and total")
        self.loss += total(self.objective, batch)
        return numbers
