r"""Head and response-level loss fused: three matrix products instead of four, and no logits kept.

The gradient of such a loss is one number per response times the gradient of its log-probability,

$$ \nabla_\theta L = \sum_n c_n \nabla_\theta \log \pi(y_n \mid x_n),
   \quad c_n = \frac{\partial L}{\partial \log \pi(y_n \mid x_n)} $$

so a chunk of rows is scored, the objective gives $c_n$, and the gradient is formed while the logits are still in the
buffer. A loss per token needs the logits twice, see `pmdkit.llm.head.head_logp`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pmdkit.llm.head import ChunkedHead, chunks, head_weight, matmul_operands
from pmdkit.llm.logprobs import hidden_at_targets, scored_tokens
from pmdkit.llm.tokens import Tokens
from pmdkit.objectives import Batch, Objective, total, traits
from pmdkit.specs.llm import HEAD_TOKENS


class FusedLoss(NamedTuple):
    """A loss and the log-probabilities behind it.

    Attributes:
        loss: scalar, float64, with gradient: `total` of the objective.
        seq_logp: [N] log-probabilities of responses, nats, float64, without gradient.
    """

    loss: Tensor
    seq_logp: Tensor


def fused_total(
    model: PreTrainedModel,
    prompts: Sequence[Tokens],
    responses: Sequence[Tokens],
    objective: Objective,
    batch: Batch,
    *,
    head_tokens: int = HEAD_TOKENS,
    temperature: float = 1.0,
) -> FusedLoss:
    """`total` of a response-level objective over N responses, each to its own prompt; see `response_logp` too.

    Args:
        objective: with `traits(objective).level` "response".
        batch: N rows; its `logp` is not read. With `traits(objective).whole_groups` the rows of a group are adjacent.
        head_tokens: rows of logits held at a time. A longer response costs a second buffer of the weight's size; a
            longer group, in a loss that compares its rows, costs a fourth product.
    """
    scored = scored_tokens(batch.mask, responses)
    states, targets = hidden_at_targets(model, prompts, responses, scored=scored)
    lengths = [len(response) for response in responses] if scored is None else scored.sum(1).tolist()
    return fused_linear_loss(states, head_weight(model), targets, lengths, objective, batch, head_tokens, temperature)


def fused_linear_loss(
    states: Tensor,
    weight: Tensor,
    targets: Tensor,
    lengths: Sequence[int],
    objective: Objective,
    batch: Batch,
    head_tokens: int = HEAD_TOKENS,
    temperature: float = 1.0,
) -> FusedLoss:
    """Like `fused_total`, from the states [M, d] and targets [M] of N concatenated responses and the weight [V, d]."""
    counts = batch.mask.sum(1).tolist()
    assert all(n in (0, length) for n, length in zip(counts, lengths, strict=True)), "0 is a row that does not count"
    coefficients = ResponseCoefficients(objective, batch, states)
    loss = FusedHeadLoss.apply(states, weight, targets, tuple(lengths), coefficients, head_tokens, temperature)
    return FusedLoss(loss, coefficients.seq_logp)


class FusedHeadLoss(torch.autograd.Function):
    """The loss. The forward pass computes the gradients too; the backward pass returns them."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        targets: Tensor,
        lengths: tuple[int, ...],
        coefficients: "ResponseCoefficients",
        head_tokens: int,
        temperature: float,
    ) -> Tensor:
        head = ChunkedHead(*matmul_operands(states, weight), targets, head_tokens, temperature)
        forward_backward(head, lengths, coefficients, head_tokens)
        # a weight in float32 gets the sums in float32, whatever the precision of the products
        ctx.gradients = head.grad_states.to(states.dtype), head.grad_weight.to(weight.dtype)
        return coefficients.loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        assert ctx.gradients is not None, "the gradients of a fused head are given away once"
        of_states, of_weight = ctx.gradients
        ctx.gradients = None  # .grad then takes the buffer itself instead of a copy of it
        if grad.is_cuda or grad != 1:  # the test would wait for an accelerator
            of_states, of_weight = of_states.mul_(grad), of_weight.mul_(grad)
        return of_states, of_weight, *[None] * 5


class ResponseCoefficients:
    """The loss and coefficients of an objective, computed as [n] log-probabilities of whole responses become known."""

    def __init__(self, objective: Objective, batch: Batch, states: Tensor) -> None:
        folded = batch.folded()
        self.groups = folded.group  # on its own device: where units begin is read on the host
        self.batch = batch_on(states.device, folded)  # so that nothing waits for an accelerator
        self.objective = objective
        self.loss = torch.zeros((), dtype=torch.float64, device=states.device)
        self.seq_logp = torch.zeros(len(self.batch.group), dtype=torch.float64, device=states.device)

    def bounds(self) -> list[int]:
        """Starts of the units, and N. A unit's coefficients need no other rows: it is a response or a whole group."""
        count = len(self.batch.group)
        if not traits(self.objective).whole_groups:
            return list(range(count + 1))
        ids, sizes = torch.unique_consecutive(self.groups, return_counts=True)
        assert len(ids) == len(torch.unique(ids)), "the responses to a prompt are one after another"
        return [0, *sizes.cumsum(0).tolist()]

    def __call__(self, rows: slice, logp: Tensor, lengths: Tensor) -> Tensor:
        """[n] coefficients of some rows, from the log-probabilities of their tokens; their loss is added to `loss`."""
        # float32 sums are off by 1e-4 nats; unsafe: a check of the lengths would wait for an accelerator
        self.seq_logp[rows] = torch.segment_reduce(logp.double(), "sum", lengths=lengths, unsafe=True)
        # like `coefficient`, but the loss is computed once: a batch is a few numbers, and on a GPU each call counts
        given = self.seq_logp[rows][:, None].detach().requires_grad_()
        with torch.enable_grad():
            loss = total(self.objective, replace(self.batch[rows], logp=given))
        self.loss += loss.detach()
        return torch.autograd.grad(loss, given)[0][:, 0]


def batch_on(device: torch.device, batch: Batch) -> Batch:
    """The batch with all of its tensors on a device."""
    given = {field.name: getattr(batch, field.name) for field in fields(batch)}
    here: dict[str, Any] = {name: None if x is None else x.to(device) for name, x in given.items()}
    return Batch(**here)


def forward_backward(
    head: ChunkedHead, lengths: tuple[int, ...], coefficients: ResponseCoefficients, head_tokens: int
) -> None:
    """Score all rows; afterwards the coefficients hold the whole loss, and the head the complete gradients."""
    sizes = torch.tensor(lengths, dtype=torch.long)
    bounds, starts = coefficients.bounds(), [0, *sizes.cumsum(0).tolist()]
    assert starts[-1] == len(head.grad_states), "each token belongs to a response"
    sizes = sizes.to(head.grad_states.device)
    spare: Tensor | None = None
    for rows in buffer_runs(bounds, starts, head_tokens):
        place, own = slice(starts[rows.start], starts[rows.stop]), sizes[rows]
        if place.stop - place.start <= head_tokens:
            # all rows are in the buffer: dL = sum_n c_n d log pi(y_n), three products
            c = coefficients(rows, head.forward(place), own)
            backward_unless_zero(head, place, c.repeat_interleave(own, output_size=place.stop - place.start))
        elif len(own) == 1:
            # one response longer than the buffer: d log pi(y) chunk by chunk, times c at the end, three products
            spare = torch.zeros_like(head.grad_weight) if spare is None else spare.zero_()
            parts = []
            for chunk in chunks(place, head_tokens):
                parts.append(head.forward(chunk))
                head.backward(chunk, torch.ones_like(parts[-1]), spare)
            c = coefficients(rows, torch.cat(parts), own)
            head.grad_states[place] *= c.to(head.grad_states)
            head.grad_weight.addcmul_(spare, c.to(spare)[:, None])
        else:
            # a group longer than the buffer: every c needs all of its log pi, so the logits are computed twice
            logp = torch.cat([head.forward(chunk) for chunk in chunks(place, head_tokens)])
            c_token = coefficients(rows, logp, own).repeat_interleave(own, output_size=len(logp))
            for chunk, c in zip(chunks(place, head_tokens), c_token.split(head_tokens), strict=True):
                head.forward(chunk)
                backward_unless_zero(head, chunk, c)


def backward_unless_zero(head: ChunkedHead, place: slice, c: Tensor) -> None:
    """Form gradients of the rows in the buffer, unless all their coefficients are 0: a group of equal rewards."""
    if c.is_cuda or bool((c != 0).any()):  # the test would wait for an accelerator
        head.backward(place, c, head.grad_weight)


def buffer_runs(bounds: list[int], starts: list[int], head_tokens: int) -> Iterator[slice]:
    """Runs of rows that fit the buffer together. Units are never split; one that does not fit is a run of its own."""
    first = 0
    for start, stop in pairwise(bounds):
        if start > first and starts[stop] - starts[first] > head_tokens:
            yield slice(first, start)
            first = start
    yield slice(first, bounds[-1])
