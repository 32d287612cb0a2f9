"""Log-probabilities of given responses, with gradient, without padding and without ever holding all logits.

Not the transformer (packing.py) and not the loss.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel

from pmdkit.errors import UsageError
from pmdkit.llm.engines.protocol import Tokens
from pmdkit.llm.packing import Packed, head, hidden
from pmdkit.llm.recompute import HeadLogp

HEAD_TOKENS = 1024  # rows of logits at a time: 0.6 GB in float32 at a vocabulary of 152k, large enough for full speed


class Scores(NamedTuple):
    """Of N responses, one after another.

    Attributes:
        logp: [sum of T_n] nats, float32 (float64 where the model is), with gradient.
        lengths: T_n of each response.
        entropy: [sum of T_n] nats of the distribution at each place, without gradient; None where not asked for.
    """

    logp: Tensor
    lengths: tuple[int, ...]
    entropy: Tensor | None = None

    def rows(self) -> list[Tensor]:
        """[T_n] of each response."""
        return list(self.logp.split(list(self.lengths)))


def response_logp(
    model: PreTrainedModel,
    prompts: Sequence[Tokens],
    responses: Sequence[Tokens],
    *,
    head_tokens: int = HEAD_TOKENS,
    with_entropy: bool = False,
    share: bool = True,
) -> Scores:
    """Log-probability of each token of N responses, each to its own prompt, at temperature 1.

    The last token of a response is never read, since nothing is predicted from it, and the head is applied only where a
    response token is predicted.

    Args:
        model: switched to packed attention by `use_packing`.
        prompts: N, each of at least one token.
        responses: N, each of at least one token, the end token included where there is one.
        head_tokens: rows of logits held at a time; they are computed again in the backward pass.
        with_entropy: also the entropy of each distribution.
        share: read a prompt once for all responses to it that stand together; same values and gradients up to rounding.
    """
    states, targets = read(model, prompts, responses, share)
    lengths = tuple(len(response) for response in responses)
    if with_entropy:
        logp, entropy = head_logp_entropy(states, head(model), targets, head_tokens)
        return Scores(logp, lengths, entropy)
    return Scores(head_logp(states, head(model), targets, head_tokens), lengths)


def read(
    model: PreTrainedModel, prompts: Sequence[Tokens], responses: Sequence[Tokens], share: bool = True
) -> tuple[Tensor, Tensor]:
    """[M, d] what the head reads where each response token is predicted, with gradient, and [M] these tokens."""
    plan = lay_out(prompts, responses, share)
    device = model.device
    ids = torch.tensor(plan.tokens, device=device)
    states = hidden(model, ids, plan.layout.positions(device), plan.layout)[torch.tensor(plan.read, device=device)]
    return states, torch.tensor([token for response in responses for token in response], device=device)


class Plan(NamedTuple):
    """Tokens to feed, who attends to whom, and where each response token is predicted from."""

    tokens: list[int]
    layout: Packed
    read: list[int]


def lay_out(prompts: Sequence[Tokens], responses: Sequence[Tokens], share: bool = True) -> Plan:
    """One stream: a prompt and its response as one sequence, or a shared prompt and the responses going on from it."""
    if len(prompts) != len(responses) or not len(prompts):
        raise ValueError(f"{len(prompts)} prompts and {len(responses)} responses; expected one of each per row")
    if not all(len(prompt) for prompt in prompts) or not all(len(response) for response in responses):
        raise ValueError("a prompt or response has no tokens; expected at least one in each")
    tokens: list[int] = []
    lengths: list[int] = []
    after: list[int] = []
    read: list[int] = []

    def put(some: list[int], origin: int) -> int:
        """Where the sequence starts."""
        tokens.extend(some)
        lengths.append(len(some))
        after.append(origin)
        return len(tokens) - len(some)

    row = 0
    while row < len(prompts):
        prompt, end = prompts[row], row + 1
        while share and end < len(prompts) and same(prompts[end], prompt):
            end += 1
        if end == row + 1:
            first = put([*prompt, *responses[row][:-1]], -1) + len(prompt) - 1
            read.extend(range(first, first + len(responses[row])))
        else:
            origin = len(lengths)
            last = put([*prompt], -1) + len(prompt) - 1
            for response in responses[row:end]:
                read.append(last)
                if len(response) > 1:
                    start = put([*response[:-1]], origin)
                    read.extend(range(start, start + len(response) - 1))
        row = end
    return Plan(tokens, Packed(tuple(lengths), tuple(after) if max(after) >= 0 else ()), read)


def same(one: Tokens, other: Tokens) -> bool:
    """Two prompts read the same."""
    return one is other or (len(one) == len(other) and list(one) == list(other))


def head_logp(states: Tensor, weight: Tensor, targets: Tensor, head_tokens: int = HEAD_TOKENS) -> Tensor:
    """[M] log-probability of each target, from states [M, d] and the head's weight [V, d], in chunks of rows."""
    with torch.no_grad():
        multiplied = operands(states, weight)
    logp: Tensor = HeadLogp.apply(states, weight, *multiplied, targets, head_tokens)
    return logp


def head_logp_entropy(states: Tensor, weight: Tensor, targets: Tensor, head_tokens: int) -> tuple[Tensor, Tensor]:
    """The same, and [M] the entropy of each distribution, without gradient."""
    states, weight = operands(states, weight)
    parts = zip(states.split(head_tokens), targets.split(head_tokens), strict=True)
    both = [recomputed(chunk_logp_entropy, part, weight, target) for part, target in parts]
    logp, entropy = (torch.cat(some) for some in zip(*both, strict=True))
    return logp, entropy


def recomputed(function: Any, *inputs: Tensor) -> Any:
    """The function, whose intermediate values are computed again when a gradient is taken."""
    if not torch.is_grad_enabled():
        return function(*inputs)
    return checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)


def chunk_logp_entropy(states: Tensor, weight: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """[m] and [m] for some rows."""
    log_policy = logits(states, weight).log_softmax(-1)
    with torch.no_grad():
        entropy = torch.special.entr(log_policy.exp()).sum(-1)
    return log_policy.gather(1, targets[:, None])[:, 0], entropy


def ready(weight: Tensor) -> Tensor:
    """The head's weight as `logits` takes it: on a CPU in float32 already, so that it is converted once."""
    return weight if weight.is_cuda or weight.dtype == torch.float64 else weight.float()


def operands(states: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """What is multiplied: half precision where an accelerator multiplies it exactly, else float32 (or float64)."""
    if states.is_cuda and torch.is_autocast_enabled("cuda"):
        half = torch.get_autocast_dtype("cuda")
        return states.to(half), weight.to(half)
    if states.is_cuda and states.dtype == weight.dtype:
        return states, weight
    wide = torch.float64 if states.dtype == torch.float64 else torch.float32
    return states.to(wide), weight.to(wide)


def logits(states: Tensor, weight: Tensor) -> Tensor:
    """[m, V] in float32 whatever the model's precision: rounded to bfloat16, a response is off by tenths of a nat."""
    states, weight = operands(states, weight)
    with torch.autocast(states.device.type, enabled=False):  # it would round the product
        if states.dtype in (torch.bfloat16, torch.float16):
            out: Tensor = WideProduct.apply(states, weight)
            return out
        return F.linear(states, weight)


class WideProduct(torch.autograd.Function):
    """states [m, d] times weight [V, d] transposed, in float32, from half precision at its speed. CUDA only."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor) -> Tensor:  # noqa: D102
        ctx.save_for_backward(states, weight)
        return torch.mm(states, weight.T, out_dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        states, weight = ctx.saved_tensors
        narrow = grad.to(states.dtype)
        return narrow @ weight, narrow.T @ states


def to_rows(flat: Tensor, lengths: Sequence[int], width: int) -> Tensor:
    """[N, T] from the responses one after another, with gradient; 0 behind the end of each."""
    if flat.shape != (sum(lengths),) or max(lengths) > width:
        raise UsageError(
            f"{list(flat.shape)} numbers for responses of {sum(lengths)} tokens, the longest {max(lengths)}, "
            f"at a width of {width}; expected as many numbers as tokens, and no longer response"
        )
    on = torch.arange(width, device=flat.device) < torch.tensor(lengths, device=flat.device)[:, None]
    return flat.new_zeros(on.shape).masked_scatter(on, flat)
