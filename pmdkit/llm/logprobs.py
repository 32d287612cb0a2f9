"""Log-probabilities of given responses, with gradient, without padding and without ever holding all logits."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pmdkit.errors import UsageError
from pmdkit.llm.engines.base import Tokens
from pmdkit.llm.head import HEAD_TOKENS, head_logp, head_logp_entropy, head_weight
from pmdkit.llm.packing import forward_packed, pack


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
    states, targets = hidden_at_targets(model, prompts, responses, share)
    lengths = tuple(len(response) for response in responses)
    if with_entropy:
        logp, entropy = head_logp_entropy(states, head_weight(model), targets, head_tokens)
        return Scores(logp, lengths, entropy)
    return Scores(head_logp(states, head_weight(model), targets, head_tokens), lengths)


def hidden_at_targets(
    model: PreTrainedModel, prompts: Sequence[Tokens], responses: Sequence[Tokens], share: bool = True
) -> tuple[Tensor, Tensor]:
    """[M, d] what the head reads where each response token is predicted, with gradient, and [M] these tokens."""
    batch, device = pack(prompts, responses, share), model.device
    ids = torch.tensor(batch.tokens, device=device)
    states = forward_packed(model, ids, batch.layout.positions(device), batch.layout)
    targets = torch.tensor([token for response in responses for token in response], device=device)
    return states[torch.tensor(batch.predict_at, device=device)], targets


def to_rows(flat: Tensor, lengths: Sequence[int], width: int) -> Tensor:
    """[N, T] from the responses one after another, with gradient; 0 behind the end of each."""
    if flat.shape != (sum(lengths),) or max(lengths) > width:
        raise UsageError(
            f"{list(flat.shape)} numbers for responses of {sum(lengths)} tokens, the longest {max(lengths)}, "
            f"at a width of {width}; expected as many numbers as tokens, and no longer response"
        )
    on = torch.arange(width, device=flat.device) < torch.tensor(lengths, device=flat.device)[:, None]
    return flat.new_zeros(on.shape).masked_scatter(on, flat)
