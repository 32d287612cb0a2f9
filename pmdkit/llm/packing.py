"""Forward passes without padding: sequences of any lengths one after another, each with its own causal attention.

The attention function is registered once with transformers, which calls it in place of its own. Not the head, not the
cache of sampling.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface, PreTrainedModel

from pmdkit.errors import EnvironmentLacks, UsageError

NAME = "pmdkit"
Pair = tuple[Tensor, Tensor]


class Layout(Protocol):
    """Which token attends to which. Travels through the model's keyword arguments to every attention layer."""

    @property
    def longest(self) -> int:
        """Of all sequences, tokens."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """[1, S, heads, d] from query [1, heads, S, d] and key and value [1, heads of keys, S, d]."""


@dataclass(frozen=True)
class Packed:
    """Sequences one after another.

    Attributes:
        lengths: tokens of each sequence, in the order in which they stand.
        after: for each sequence the index of the one that it goes on from, or -1. A prompt that several responses go
            on from is read once: they attend to it and to themselves. It must not go on from another one itself.
        kept: keys and values of each layer, as they were computed, where a dictionary is given.
    """

    lengths: tuple[int, ...]
    after: tuple[int, ...] = ()
    kept: dict[int, Pair] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.lengths or min(self.lengths) < 1:
            raise ValueError(f"lengths is {self.lengths[:8]}; expected at least one sequence, each of at least 1 token")
        if self.after and len(self.after) != len(self.lengths):
            raise ValueError(f"after has {len(self.after)} entries; expected {len(self.lengths)}, one per sequence")
        if any(head >= 0 and self.after[head] >= 0 for head in self.after):
            raise ValueError("after points at a sequence that goes on from another one; one level is all there is")

    @cached_property
    def starts(self) -> list[int]:
        """Where each sequence begins."""
        return [0, *torch.tensor(self.lengths).cumsum(0).tolist()]

    @cached_property
    def heads(self) -> list[range]:
        """The tokens that stand before each sequence, outside of it; empty for a sequence of its own."""
        starts = self.starts
        after = self.after or (-1,) * len(self.lengths)
        return [range(starts[head], starts[head + 1]) if head >= 0 else range(0) for head in after]

    @cached_property
    def longest(self) -> int:
        """Of all sequences with what they go on from, tokens."""
        return max(len(head) + length for head, length in zip(self.heads, self.lengths, strict=True))

    def positions(self, device: torch.device | str = "cpu") -> Tensor:
        """[S] the place of each token in its sequence, from 0."""
        parts = zip(self.heads, self.lengths, strict=True)
        return torch.cat([torch.arange(len(head), len(head) + length) for head, length in parts]).to(device)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """Causal attention within each sequence and what it goes on from."""
        if self.kept is not None:
            self.kept[layer] = key, value
        if query.is_cuda and query.dtype in (torch.bfloat16, torch.float16):
            return self.attend_at_once(query, key, value, scaling)
        return self.attend_one_by_one(query, key, value, scaling)

    def attend_one_by_one(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """One call per sequence: what a CPU does best, and what kernels for half precision cannot do in float32."""
        gqa = query.shape[1] != key.shape[1]
        # split, not a slice each: the gradient of a slice is as long as all sequences together
        queries, keys, values = (x.split(self.lengths, 2) for x in (query, key, value))
        parts = []
        for q, k, v, head in zip(queries, keys, values, self.after or (-1,) * len(queries), strict=True):
            mask = None
            if head >= 0:
                mask = self.mask(k.shape[2], keys[head].shape[2], q.device)
                k, v = torch.cat((keys[head], k), 2), torch.cat((values[head], v), 2)
            part = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=gqa
            )
            parts.append(part.transpose(1, 2))
        return torch.cat(parts, 1)

    def attend_at_once(self, query: Tensor, key: Tensor, value: Tensor, scaling: float | None) -> Tensor:
        """One kernel for all sequences. It aligns the ends of queries and keys, so a shared head is only gathered."""
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))  # [S, heads, d]
        if self.after:
            rows = self.rows(q.device)
            k, v = k[rows], v[rows]
        ends_q, ends_k = self.ends(q.device)
        out = varlen_attn(
            q,
            k,
            v,
            ends_q,
            ends_k,
            max(self.lengths),
            self.longest,
            scale=scaling,
            window_size=(-1, 0),
            enable_gqa=q.shape[1] != k.shape[1],
        )
        assert isinstance(out, Tensor)
        return out[None]

    def mask(self, length: int, head: int, device: torch.device) -> Tensor:
        """[T, L + T] True where a token of a sequence may look. Made once for all layers."""
        if (length, head) not in self._cache:
            self._cache[length, head] = torch.ones(length, head + length, dtype=torch.bool, device=device).tril(head)
        return self._cache[length, head]

    def rows(self, device: torch.device) -> Tensor:
        """The tokens whose keys each sequence needs, one sequence after another."""
        if "rows" not in self._cache:
            bounds = zip(self.heads, self.starts, self.lengths, strict=False)
            wanted = [torch.arange(b, e) for h, s, n in bounds for b, e in ((h.start, h.stop), (s, s + n))]
            self._cache["rows"] = torch.cat(wanted).to(device)
        return self._cache["rows"]

    def ends(self, device: torch.device) -> Pair:
        """Where the queries and the keys of each sequence end, from 0, int32 as the kernel wants them."""
        if "ends_q" not in self._cache:
            seen = [len(head) + length for head, length in zip(self.heads, self.lengths, strict=True)]
            for name, lengths in (("ends_q", self.lengths), ("ends_k", seen)):
                ends = F.pad(torch.tensor(lengths).cumsum(0), (1, 0)).to(torch.int32)
                self._cache[name] = ends.to(device)
        return self._cache["ends_q"], self._cache["ends_k"]

    @cached_property
    def _cache(self) -> dict[Any, Tensor]:
        return {}


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    layout: Layout | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """What transformers calls in every attention layer."""
    if layout is None:
        raise UsageError(
            "the model's attention is pmdkit's, which needs a layout: call pmdkit.llm.packing.hidden, "
            "or model.set_attn_implementation('sdpa') for a forward pass of transformers"
        )
    window = others.get("sliding_window")
    if window is not None and layout.longest > window:
        raise UsageError(
            f"a sequence of {layout.longest} tokens is longer than the model's sliding window of {window}; "
            "packed attention is full: shorten prompts and responses, or take a model without a window"
        )
    wrong = [name for name in ("softcap", "s_aux", "position_bias") if others.get(name) is not None]
    if wrong or dropout:
        raise UsageError(
            f"the model's attention has {wrong or 'dropout'}; packed attention has not: take another model"
        )
    assert attention_mask is None, "transformers made a mask although the layout says who attends to whom"
    layer = module.layer_idx
    assert isinstance(layer, int)
    return layout.attend(layer, query, key, value, scaling), None


AttentionInterface.register(NAME, attention)


def use_packing(model: PreTrainedModel) -> None:
    """Switch a model to packed attention, for good; its own `generate` and stock forward passes stop working."""
    model.set_attn_implementation(NAME)
    if model.config._attn_implementation != NAME:
        raise EnvironmentLacks(f"{type(model).__name__} does not take its attention from outside; take a newer model")


def hidden(model: PreTrainedModel, ids: Tensor, positions: Tensor, layout: Layout) -> Tensor:
    """[S, d] what the head reads at each of S packed tokens, with gradient; ids and positions are [S].

    Raises:
        ValueError: the model is not switched: its own attention may see all sequences as one, and is slow.
    """
    found = model.config._attn_implementation
    if found != NAME:
        raise ValueError(
            f"the attention of this {type(model).__name__} is '{found}'; expected '{NAME}': call use_packing first"
        )
    out = model.base_model(input_ids=ids[None], position_ids=positions[None], use_cache=False, layout=layout)
    return out.last_hidden_state[0]


def head(model: PreTrainedModel) -> Tensor:
    """[V, d] the weight of the model's head."""
    layer: Any = model.get_output_embeddings()
    if not isinstance(layer, nn.Linear) or layer.bias is not None:
        raise EnvironmentLacks(f"the head of {type(model).__name__} is {layer}; expected a linear layer without a bias")
    return layer.weight


def check_packing(model: PreTrainedModel, *, lengths: Sequence[int] = (5, 1, 12, 7), tolerance: float = 1e-4) -> None:
    """Refuse a model whose packed log-probabilities are not those of its own forward pass.

    Args:
        model: switched to packed attention if it is not yet.
        lengths: of a few sequences of tokens spread over the vocabulary.
        tolerance: largest error relative to the largest log-probability; wider by itself in half precision.
    """
    device, size = model.device, head(model).shape[0]
    layout = Packed(tuple(lengths))
    ids = (torch.arange(sum(lengths), device=device) * 7919 + 11) % size
    use_packing(model)
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            packed = F.linear(hidden(model, ids, layout.positions(device), layout), head(model)).double()
            model.set_attn_implementation("eager")
            rows = ids.split(list(lengths))
            stock = torch.cat([model(row[None], use_cache=False).logits[0].double() for row in rows])
    finally:
        model.set_attn_implementation(NAME)
        model.train(training)
    packed, stock = packed.log_softmax(-1), stock.log_softmax(-1)
    error = float((packed - stock).abs().max() / stock.abs().max())
    allowed = max(tolerance, 4 * torch.finfo(model.dtype).eps)
    if not error <= allowed:
        raise EnvironmentLacks(
            f"packed log-probabilities of {type(model).__name__} differ from its own forward pass by {error:.1e} "
            f"(relative; at most {allowed:.1e}); its architecture does more than packing knows: take another model"
        )
