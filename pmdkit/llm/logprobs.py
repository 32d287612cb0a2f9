"""Log-probabilities of given responses, with gradient, without padding and without ever holding all logits.

The head over the vocabulary, in chunks, is in head.py.
"""

from collections.abc import Sequence, Sized

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pmdkit.llm.head import head_logp, head_weight
from pmdkit.llm.packing import forward_packed, pack
from pmdkit.llm.tokens import Tokens
from pmdkit.specs.llm import HEAD_TOKENS


def response_logp(
    model: PreTrainedModel,
    prompts: Sequence[Tokens],
    responses: Sequence[Tokens],
    *,
    head_tokens: int = HEAD_TOKENS,
    share: bool = True,
    scored: Tensor | None = None,
    temperature: float = 1.0,
) -> Tensor:
    """[sum of T_n] log-probability of each token of N responses, each to its own prompt, nats, with gradient.

    In float32, or float64 where the model is.

    The last token of a response is never read, since nothing is predicted from it, and the head is applied only where a
    response token is predicted.

    Args:
        model: switched to packed attention by `use_packing`.
        prompts: N, each of at least one token.
        responses: N, each of at least one token, the end token included if there is one.
        head_tokens: rows of logits held at a time; they are recomputed in the backward pass.
        share: process a prompt once for all adjacent responses to it; same values and gradients up to rounding.
        scored: [N, T] as `scored_tokens` gives it; the other tokens are context, and T_n counts the scored ones.
        temperature: > 0, that of the policy: the logits are divided by it.
    """
    states, targets = hidden_at_targets(model, prompts, responses, share, scored)
    return head_logp(states, head_weight(model), targets, head_tokens, temperature)


def hidden_at_targets(
    model: PreTrainedModel,
    prompts: Sequence[Tokens],
    responses: Sequence[Tokens],
    share: bool = True,
    scored: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """[M, d] hidden states from which each scored token is predicted, with gradient, and [M] these tokens."""
    batch, device = pack(prompts, responses, share), model.device
    ids = torch.tensor(batch.tokens, device=device)
    states = forward_packed(model, ids, batch.layout.positions(device), batch.layout)
    targets = [token for response in responses for token in response]
    predict_at = batch.predict_at
    if scored is not None:
        kept = [on for row, response in zip(scored.tolist(), responses, strict=True) for on in row[: len(response)]]
        targets = [token for token, on in zip(targets, kept, strict=True) if on]
        predict_at = [place for place, on in zip(predict_at, kept, strict=True) if on]
    return states[torch.tensor(predict_at, device=device)], torch.tensor(targets, device=device)


def scored_tokens(mask: Tensor, responses: Sequence[Sized]) -> Tensor | None:
    """[N, T] which tokens of N responses are the policy's; None if all are, as without an environment.

    An environment's tokens are off the mask and lie between those of the policy: they are context, and not scored. A
    row that is entirely off the mask counts for nothing, and is scored as a whole.
    """
    lengths = torch.tensor([len(response) for response in responses], device=mask.device)
    scored = scored_places(mask, lengths)
    return None if torch.equal(scored.sum(1), lengths) else scored


def scored_places(mask: Tensor, lengths: Tensor) -> Tensor:
    """[N, T] the places of the scored tokens of N responses of these lengths, [N]."""
    whole = torch.arange(mask.shape[1], device=mask.device) < lengths[:, None]
    return torch.where(mask.any(1, keepdim=True), mask, whole)


def to_rows(flat: Tensor, lengths: Sequence[int], width: int) -> Tensor:
    """[N, T] from concatenated responses, with gradient; 0 after the end of each."""
    on = torch.arange(width, device=flat.device) < torch.tensor(lengths, device=flat.device)[:, None]
    return flat.new_zeros(on.shape).masked_scatter(on, flat)
