"""What an objective must be before anything else can be asked of it."""

from dataclasses import FrozenInstanceError, fields, is_dataclass

import torch

from pmdkit.objectives.vocabulary import Objective
from pmdkit.testing.objectives.cases import case, value_and_gradient


def check_kind(objective: Objective, seed: int = 0) -> str | None:
    """A frozen dataclass, an advantage [P, G] without gradient, an unreduced loss [N] or [N, T] of logp."""
    assert not isinstance(objective, type), "it is a class; give an instance of it, such as MyLoss()"
    assert is_dataclass(objective), "it is not a dataclass; put @dataclass(frozen=True) on the class"
    assert is_frozen(objective), "it can be changed after it was made; put @dataclass(frozen=True) on the class"
    assert objective.norm in ("none", "length", "max", "tokens"), f"norm is {objective.norm!r}, no rule of row_weight"

    it = case(seed)
    advantage = objective.advantage(it.groups)
    shape, expected = list(advantage.shape), list(it.groups.reward.shape)
    assert shape == expected, f"advantage has shape {shape}; expected {expected}, one number per response"
    assert bool(torch.isfinite(advantage).all()), "advantage is not finite on finite rewards"
    assert not advantage.requires_grad, "advantage carries a gradient; credit has none"

    batch = it.batch(objective)
    loss = objective.loss(batch)
    rows, tokens = batch.mask.shape
    assert list(loss.shape) in ([rows], [rows, tokens]), (
        f"loss has shape {list(loss.shape)}; expected [{rows}] or [{rows}, {tokens}], unreduced: `total` averages"
    )
    assert bool(torch.isfinite(loss[batch.mask] if loss.ndim == 2 else loss).all()), "loss is not finite"
    if loss.ndim == 2:
        zero = bool((loss[~batch.mask] == 0).all())
        assert zero, "a loss per token is not 0 off the mask; use torch.where(batch.mask, ..., 0.0)"
    _, gradient = value_and_gradient(objective, batch)
    assert bool((gradient != 0).any()), "the loss does not depend on logp"
    return None


def is_frozen(objective: Objective) -> bool:
    """Whether an instance refuses an assignment."""
    name = next((field.name for field in fields(objective)), "norm")  # type: ignore[arg-type]
    try:
        setattr(objective, name, getattr(objective, name))
    except FrozenInstanceError:
        return True
    return False
