"""The head of the language-model tier, made to give the recorded log-probabilities."""

from dataclasses import replace

import torch

from pmdkit.llm.fused import head_total
from pmdkit.llm.scoring import head_logp, to_rows
from pmdkit.objectives import coefficient, total
from pmdkit.testing.golden.case import Case, Result, has_holes, ministeps_of, objective_of


def chunked(case: Case) -> Result | None:
    """Logits computed again in the backward pass."""
    return through_head(case, in_one=False)


def fused(case: Case) -> Result | None:
    """Three matrix products; response-level objectives only."""
    return through_head(case, in_one=True)


def through_head(case: Case, in_one: bool) -> Result | None:
    """A vocabulary of two: the head's weight is the identity and the states are log-probabilities.

    The gradient by a target's state is (1 - p) times that by its log-probability.
    """
    objective, batches = objective_of(case), ministeps_of(case)
    if has_holes(case) or (in_one and coefficient(objective, batches[0]) is None):
        return None
    losses, gradient = [], []
    place = 0
    for batch in batches:
        rows = case["logp"][place : (place := place + len(batch.logp))]
        flat, lengths = torch.tensor([x for row in rows for x in row], dtype=torch.float64), [len(row) for row in rows]
        states = torch.stack([flat, torch.log1p(-flat.exp())], 1).requires_grad_()
        weight, targets = torch.eye(2, dtype=torch.float64), torch.zeros(len(flat), dtype=torch.int64)
        if in_one:
            loss = head_total(states, weight, targets, lengths, objective, batch, head_tokens=3).loss
        else:
            logp = to_rows(head_logp(states, weight, targets, head_tokens=3), lengths, batch.mask.shape[1])
            loss = total(objective, replace(batch, logp=logp))
        (by_state,) = torch.autograd.grad(loss, states)
        losses.append(loss.item())
        gradient += [row.tolist() for row in (by_state[:, 0] / (1 - flat.exp())).split(lengths)]
    return losses, gradient
