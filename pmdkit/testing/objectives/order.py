"""Rows carry their own labels, and responses are sets: no order matters."""

from dataclasses import replace

import torch
from torch import Tensor

from pmdkit.objectives.vocabulary import Groups, Objective
from pmdkit.testing.objectives.cases import case, same, value_and_gradient


def check_row_order(objective: Objective, seed: int = 0) -> str | None:
    """Shuffled rows give the same loss; shuffled responses of a group carry their advantages along."""
    it = case(seed)
    batch = it.batch(objective)
    value, gradient = value_and_gradient(objective, batch)
    shuffled = permutation(len(batch.logp), seed)
    shuffled_value, shuffled_gradient = value_and_gradient(objective, batch[shuffled])
    same(shuffled_value, value, "the order of the rows changes the loss; find a row's group by batch.group")
    same(shuffled_gradient, gradient[shuffled], "the order of the rows changes the gradient")

    order = permutation(it.groups.reward.shape[1], seed)
    moved = objective.advantage(Groups(it.groups.reward[:, order], it.groups.mass[:, order]))
    same(moved, objective.advantage(it.groups)[:, order], "the order of the responses changes their advantages")
    return None


def check_token_order(objective: Objective, seed: int = 0) -> str | None:
    """A loss [N] sees the sum over a response only: its tokens may change places."""
    it = case(seed)
    batch = it.batch(objective)
    loss = objective.loss(batch)
    if loss.ndim == 2:
        return "does not apply: the loss is per token"
    random = torch.Generator().manual_seed(seed)
    # sorting random keys, with padding last, permutes the tokens within each response
    keys = torch.where(batch.mask, torch.rand(batch.mask.shape, generator=random), 2.0).argsort(1)
    moved = replace(
        batch,
        logp=batch.logp.gather(1, keys),
        logp_old=batch.logp_old.gather(1, keys),
        logp_ref=None if batch.logp_ref is None else batch.logp_ref.gather(1, keys),
    )
    same(objective.loss(moved), loss, "a loss per response changes with the order of its tokens; use sums over them")
    return None


def permutation(count: int, seed: int) -> Tensor:
    """A random order."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))
