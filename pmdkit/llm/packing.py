"""Forward passes without padding: prompts and responses packed back to back, each with its own causal attention.

`pack` lays them out, `forward_packed` runs the model on them, and the layout that travels with a forward pass says
which token sees which; `packed_attention.py` computes that.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel

from pmdkit.errors import EnvironmentLacks
from pmdkit.llm.head import head_weight
from pmdkit.llm.packed_attention import ATTENTION, Layout, LayoutMissing, PackedLayout
from pmdkit.llm.tokens import Tokens


def use_packing(model: PreTrainedModel) -> None:
    """Permanently switch a model to packed attention; its own `generate` and stock forward passes stop working."""
    model.set_attn_implementation(ATTENTION)
    if model.config._attn_implementation != ATTENTION:
        raise EnvironmentLacks(f"{type(model).__name__} does not let its attention be replaced; take a newer model")


class PackedBatch(NamedTuple):
    """Sequences that share a forward pass.

    Attributes:
        tokens: S input tokens.
        layout: which token attends to which.
        predict_at: for each token of all responses, in order, the place in `tokens` that predicts it.
    """

    tokens: list[int]
    layout: "PackedLayout"
    predict_at: list[int]


def pack(prompts: Sequence[Tokens], responses: Sequence[Tokens], share: bool = True) -> PackedBatch:
    """Pack rows into one stream: a prompt and its response as one sequence, or a shared prompt before its responses."""
    assert len(prompts) == len(responses)
    assert all(map(len, prompts))
    assert all(map(len, responses))
    tokens: list[int] = []
    lengths: list[int] = []
    after: list[int] = []
    predict_at: list[int] = []

    def put(some: list[int], origin: int) -> int:
        """Append a sequence, and return where it starts."""
        tokens.extend(some)
        lengths.append(len(some))
        after.append(origin)
        return len(tokens) - len(some)

    # The layout of a group that shares its prompt x, with responses a, b (the last token of each is not fed):
    #   tokens     x1 x2 x3 | a1 a2 | b1        after     -1, 0, 0
    #   predict_at x3 a1 a2 | x3 b1             targets   a1 a2 a3, b1 b2
    # Each response continues sequence 0, so its positions count on from the end of x, and it never sees its siblings.
    row = 0
    while row < len(prompts):
        prompt, end = prompts[row], row + 1
        while share and end < len(prompts) and (prompts[end] is prompt or list(prompts[end]) == list(prompt)):
            end += 1
        # the last token of a response is not fed: it predicts nothing
        if end == row + 1:
            first = put([*prompt, *responses[row][:-1]], -1) + len(prompt) - 1
            predict_at.extend(range(first, first + len(responses[row])))
        else:
            # the prompt once; its last token predicts the first token of every response
            origin = len(lengths)
            last = put([*prompt], -1) + len(prompt) - 1
            for response in responses[row:end]:
                predict_at.append(last)
                if len(response) > 1:
                    start = put([*response[:-1]], origin)
                    predict_at.extend(range(start, start + len(response) - 1))
        row = end
    return PackedBatch(tokens, PackedLayout(tuple(lengths), tuple(after) if max(after) >= 0 else ()), predict_at)


def forward_packed(model: PreTrainedModel, ids: Tensor, positions: Tensor, layout: "Layout") -> Tensor:
    """[S, d] the hidden states of S packed tokens that the head reads, with gradient; ids and positions are [S].

    Raises:
        ValueError: `use_packing` was not called: the model's own attention may see all sequences as one, and is slow.
    """
    found = model.config._attn_implementation
    if found != ATTENTION:
        raise ValueError(
            f"the attention of this {type(model).__name__} is '{found}'; expected '{ATTENTION}': call use_packing first"
        )
    out = model.base_model(input_ids=ids[None], position_ids=positions[None], use_cache=False, layout=layout)
    return out.last_hidden_state[0]


def check_packing(model: PreTrainedModel, *, lengths: Sequence[int] = (5, 1, 12, 7), tolerance: float = 1e-4) -> None:
    """Refuse a model whose packed log-probabilities are not those of its own forward pass.

    The model stays switched to packed attention. `lengths` are of a few sequences of tokens spread over the vocabulary.
    `tolerance` is relative to the largest log-probability, and widened in half precision.
    """
    device, size = model.device, head_weight(model).shape[0]
    layout = PackedLayout(tuple(lengths))
    ids = (torch.arange(sum(lengths), device=device) * 7919 + 11) % size
    use_packing(model)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            packed = F.linear(forward_packed(model, ids, layout.positions(device), layout), head_weight(model)).double()
            model.set_attn_implementation("eager")
            rows = ids.split(list(lengths))
            stock = torch.cat([model(row[None], use_cache=False).logits[0].double() for row in rows])
    except LayoutMissing as problem:
        raise EnvironmentLacks(
            f"{type(model).__name__} does not pass on to its attention which tokens belong together; take another model"
        ) from problem
    finally:
        model.set_attn_implementation(ATTENTION)
        model.train(training)
    packed, stock = packed.log_softmax(-1), stock.log_softmax(-1)
    error = float((packed - stock).abs().max() / stock.abs().max())
    allowed = max(tolerance, 4 * torch.finfo(model.dtype).eps)
    if not error <= allowed:
        raise EnvironmentLacks(
            f"packed log-probabilities of {type(model).__name__} differ from its own forward pass by {error:.1e} "
            f"(relative; at most {allowed:.1e}); its architecture does more than packing supports: take another model"
        )
