"""Log-probabilities through the head whose logits are computed again in the backward pass: four matrix products.

For losses per token, where every token has a gradient of its own. Response-level losses take three: fused.py.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from pmdkit.llm.visit import Visit


class HeadLogp(torch.autograd.Function):
    """[M] log-probability of each target; one buffer of logits is held, in either direction.

    Arguments: states [M, d] and weight [V, d], the same two as they are multiplied, targets [M], and the rows of the
    buffer. Gradients come back in the precision of the first two, not of the product.
    """

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, given: Tensor, head: Tensor, states: Tensor, weight: Tensor, targets: Tensor, head_tokens: int
    ) -> Tensor:
        ctx.save_for_backward(states, weight, targets)
        ctx.head_tokens, ctx.dtypes = head_tokens, (given.dtype, head.dtype)
        with torch.autocast(states.device.type, enabled=False):
            visit = Visit(states, weight, targets, head_tokens, gradients=False)
            return torch.cat([visit.score(rows) for rows in chunks(len(states), head_tokens)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        states, weight, targets = ctx.saved_tensors
        with torch.autocast(states.device.type, enabled=False):
            visit = Visit(states, weight, targets, ctx.head_tokens)
            for rows in chunks(len(states), ctx.head_tokens):
                visit.score(rows)
                visit.follow(rows, grad[rows], visit.grad_weight)
        of_states, of_weight = (
            x.to(t) for x, t in zip((visit.grad_states, visit.grad_weight), ctx.dtypes, strict=True)
        )
        return of_states, of_weight, None, None, None, None


def chunks(count: int, size: int) -> list[slice]:
    """Runs of at most `size` of `count` rows."""
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]
