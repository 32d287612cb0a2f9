"""The loss of a response-level objective through the head: three matrix products instead of four, no logits kept.

The gradient of such a loss is one number per response times the gradient of its log-probability (`coefficient`), so
logits need not be computed again in the backward pass: a response is scored, the objective asked, and the gradient
formed in the same visit (visit.py, coefficients.py). Losses per token go through scoring.py: logits twice.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pmdkit.errors import UsageError
from pmdkit.llm.coefficients import Asked
from pmdkit.llm.engines.protocol import Tokens
from pmdkit.llm.packing import head
from pmdkit.llm.scoring import HEAD_TOKENS, operands, read
from pmdkit.llm.visit import Visit
from pmdkit.objectives import Objective
from pmdkit.objectives.vocabulary import Batch


class FusedTotal(NamedTuple):
    """A loss and what it was computed from.

    Attributes:
        loss: scalar, float64, with gradient: `total` of the objective.
        logp: [sum of T_n] nats, one response after another, without gradient.
    """

    loss: Tensor
    logp: Tensor


def fused_total(
    model: PreTrainedModel,
    prompts: Sequence[Tokens],
    responses: Sequence[Tokens],
    objective: Objective,
    batch: Batch,
    *,
    head_tokens: int = HEAD_TOKENS,
    share: bool = True,
) -> FusedTotal:
    """`total` of a response-level objective over N responses, each to its own prompt.

    Args:
        model: switched to packed attention by `use_packing`.
        prompts, responses: N each, as for `response_logp`.
        objective: one whose `coefficient` is not None.
        batch: N rows; its `logp` is not read. With `traits(objective).whole_groups` the rows of a group stand together.
        head_tokens: rows of logits held at a time. A response that is longer costs a second buffer of the weight's
            size, a group of a loss that compares its rows a fourth product.
        share: read a prompt once for all responses to it that stand together.
    """
    states, targets = read(model, prompts, responses, share)
    return head_total(states, head(model), targets, [len(row) for row in responses], objective, batch, head_tokens)


def head_total(
    states: Tensor,
    weight: Tensor,
    targets: Tensor,
    lengths: Sequence[int],
    objective: Objective,
    batch: Batch,
    head_tokens: int = HEAD_TOKENS,
) -> FusedTotal:
    """The same from states [M, d] and targets [M] of N responses one after another, and the head's weight [V, d]."""
    counts = batch.mask.sum(1).tolist()
    if len(lengths) != len(counts) or any(n not in (0, length) for n, length in zip(counts, lengths, strict=True)):
        raise UsageError(
            f"responses of {list(lengths)[:8]} tokens and a batch whose rows have {counts[:8]}; "
            "expected the same numbers, or 0 for a row that does not count"
        )
    loss, logp = HeadTotal.apply(states, weight, targets, tuple(lengths), Asked(objective, batch, states), head_tokens)
    return FusedTotal(loss, logp)


class HeadTotal(torch.autograd.Function):
    """Loss and log-probabilities; the gradients are computed in the forward pass and handed out in the backward."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        targets: Tensor,
        lengths: tuple[int, ...],
        asked: Asked,
        head_tokens: int,
    ) -> tuple[Tensor, Tensor]:
        visit = Visit(*operands(states, weight), targets, head_tokens)
        with torch.autocast(states.device.type, enabled=False):
            logp = visit_all(visit, lengths, asked, head_tokens)
        # a weight in float32 gets the sums in float32, whatever the precision of the products
        ctx.gradients = visit.grad_states.to(states.dtype), visit.grad_weight.to(weight.dtype)
        ctx.mark_non_differentiable(logp)
        return asked.loss, logp

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        if ctx.gradients is None:
            raise UsageError("a second backward pass through the fused head; expected one: call fused_total again")
        of_states, of_weight = ctx.gradients
        ctx.gradients = None  # .grad then takes the buffer itself instead of a copy of it
        if grad != 1:
            of_states, of_weight = of_states * grad.to(of_states), of_weight * grad.to(of_weight)
        return of_states, of_weight, None, None, None, None


def visit_all(visit: Visit, lengths: tuple[int, ...], asked: Asked, head_tokens: int) -> Tensor:
    """[M] log-probabilities; afterwards the gradients of the visit are complete."""
    bounds, starts = asked.bounds(), [0, *torch.tensor(lengths).cumsum(0).tolist()]
    spare: Tensor | None = None
    logp: list[Tensor] = []
    for rows in parts(bounds, starts, head_tokens):
        place, own = slice(starts[rows.start], starts[rows.stop]), lengths[rows]
        if place.stop - place.start <= head_tokens:
            logp.append(visit.score(place))
            numbers = asked(rows, logp[-1].split(own))
            follow(visit, place, spread(numbers, own))
        elif len(own) == 1:
            spare = visit.like_weight() if spare is None else spare.zero_()
            logp.append(visit_long(visit, place, rows, asked, head_tokens, spare))
        else:
            chunks = list(cut(place, head_tokens))
            logp.append(torch.cat([visit.score(chunk) for chunk in chunks]))
            numbers = spread(asked(rows, logp[-1].split(own)), own)
            for chunk, some in zip(chunks, numbers.split(head_tokens), strict=True):
                visit.score(chunk)
                follow(visit, chunk, some)
    return torch.cat(logp)


def visit_long(visit: Visit, place: slice, rows: slice, asked: Asked, head_tokens: int, spare: Tensor) -> Tensor:
    """[T] of one response longer than the buffer: its gradient is formed for coefficient 1, and scaled at the end."""
    logp = []
    for chunk in cut(place, head_tokens):
        logp.append(visit.score(chunk))
        visit.follow(chunk, torch.ones_like(logp[-1]), spare)
    whole = torch.cat(logp)
    number = asked(rows, [whole])
    visit.grad_states[place] *= number.to(visit.grad_states)
    visit.grad_weight.addcmul_(spare, number.to(spare)[:, None])
    return whole


def follow(visit: Visit, place: slice, numbers: Tensor) -> None:
    """Form gradients of rows that were scored, unless all their coefficients are 0: a group of equal rewards."""
    if numbers.is_cuda or bool((numbers != 0).any()):  # an accelerator would be waited for
        visit.follow(place, numbers, visit.grad_weight)


def spread(numbers: Tensor, lengths: Sequence[int]) -> Tensor:
    """[M] each of [N] once per token of its response."""
    return torch.cat([number.expand(length) for number, length in zip(numbers, lengths, strict=True)])


def parts(bounds: list[int], starts: list[int], head_tokens: int) -> Iterator[slice]:
    """Runs of rows that fit the buffer together, never cutting a unit; one that does not fit stands alone."""
    first = 0
    for start, stop in pairwise(bounds):
        if start > first and starts[stop] - starts[first] > head_tokens:
            yield slice(first, start)
            first = start
    yield slice(first, bounds[-1])


def cut(place: slice, head_tokens: int) -> Iterator[slice]:
    """A run of tokens in pieces."""
    for start in range(place.start, place.stop, head_tokens):
        yield slice(start, min(start + head_tokens, place.stop))
