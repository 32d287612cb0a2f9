"""Attention of packed sequences: which token sees which, and two kernels that compute it.

transformers calls `packed_attention` in every attention layer in place of its own attention. `choose_kernel` takes the
first kernel that the device supports:

1. `varlen`: flash attention over sequences of any length, for half precision on NVIDIA GPUs from Ampere on.
2. `sdpa`: torch's attention once per sequence, on every device and in every precision.
"""

from dataclasses import dataclass, field
from functools import cache, cached_property
from inspect import signature
from typing import Any, Literal, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from pmdkit.errors import UsageError

ATTENTION = "pmdkit"  # its name in transformers
MASK = 2**20  # most entries of a mask: 1 MB for all layers together, 4 MB for each layer that needs it in its gradient
ROWS = 512  # queries that share a mask where there is a window or a sink
WANTS_GQA = "enable_gqa" in signature(varlen_attn).parameters  # torch 2.11 shares the heads of keys without it
KeysValues = tuple[Tensor, Tensor]
Kernel = Literal["varlen", "sdpa"]


class Attention(NamedTuple):
    """The attention options of a layer.

    Attributes:
        scaling: factor of the scores; None for 1 / sqrt(d).
        window: tokens that a query sees, its own included; None for all earlier tokens.
        sinks: [heads] scores without a value that take their share of every softmax.
    """

    scaling: float | None = None
    window: int | None = None
    sinks: Tensor | None = None


class LayoutMissing(UsageError):
    """Attention was called without a layout."""


class Layout(Protocol):
    """Which token attends to which. Travels through the model's keyword arguments to every attention layer."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: Attention) -> Tensor:
        """[1, S, heads, d] from query [1, heads, S, d] and key and value [1, heads of keys, S, d]."""


def packed_attention(
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
    """The function that transformers calls in every attention layer."""
    if layout is None:
        raise LayoutMissing(
            "the model's attention is pmdkit's, which needs a layout: call pmdkit.llm.packing.forward_packed, "
            "or model.set_attn_implementation('sdpa') for a forward pass of transformers"
        )
    wrong = [name for name in ("softcap", "position_bias") if others.get(name) is not None]
    if wrong or dropout:
        raise UsageError(
            f"the model's attention has {wrong or 'dropout'}; packed attention does not: take another model"
        )
    assert attention_mask is None, "transformers made a mask although the layout says who attends to whom"
    layer = module.layer_idx
    assert isinstance(layer, int)
    how = Attention(scaling, others.get("sliding_window"), others.get("s_aux"))
    return layout.attend(layer, query, key, value, how), None


AttentionInterface.register(ATTENTION, packed_attention)


def choose_kernel(query: Tensor, value: Tensor, sinks: bool) -> Kernel:
    """The first kernel that the device and the sizes allow; flash attention does not support sinks.

    `query` is [1, heads, S, d], `value` [1, heads of keys, S, d of values].
    """
    d, d_value = query.shape[3], value.shape[3]
    half = query.dtype in (torch.bfloat16, torch.float16)
    fits = half and not sinks and d == d_value and d % 8 == 0 and d <= 256
    return "varlen" if fits and has_flash(query.device) else "sdpa"


@cache
def has_flash(device: torch.device) -> bool:
    """Whether torch has flash attention for the device, an NVIDIA GPU from Ampere on."""
    nvidia = device.type == "cuda" and torch.version.cuda is not None
    return (
        nvidia
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and torch.backends.cuda.is_flash_attention_available()
    )


@dataclass(frozen=True)
class PackedLayout:
    """The layout of sequences packed one after another.

    Attributes:
        lengths: tokens of each sequence, in packed order.
        after: for each sequence the index of the one that it continues, or -1. A prompt that several responses continue
            is read once: they attend to it and to themselves. It must not continue another sequence itself.
        kept: if a dictionary is given, it receives the keys and values of each layer as they are computed.
    """

    lengths: tuple[int, ...]
    after: tuple[int, ...] = ()
    kept: dict[int, KeysValues] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        assert min(self.lengths, default=0) >= 1
        assert len(self.after) in (0, len(self.lengths))
        assert not any(head >= 0 and self.after[head] >= 0 for head in self.after), "a prompt continues nothing"

    @cached_property
    def starts(self) -> list[int]:
        """Where each sequence begins."""
        return [0, *torch.tensor(self.lengths).cumsum(0).tolist()]

    @cached_property
    def heads(self) -> list[range]:
        """The range of packed tokens that each sequence continues; empty for one that continues none."""
        starts = self.starts
        after = self.after or (-1,) * len(self.lengths)
        return [range(starts[head], starts[head + 1]) if head >= 0 else range(0) for head in after]

    @cached_property
    def longest(self) -> int:
        """Tokens of the longest sequence, including what it continues."""
        return max(len(head) + length for head, length in zip(self.heads, self.lengths, strict=True))

    def positions(self, device: torch.device | str = "cpu") -> Tensor:
        """[S] the position of each token in its sequence, from 0, after the prompt that it continues."""
        parts = zip(self.heads, self.lengths, strict=True)
        return torch.cat([torch.arange(len(head), len(head) + length) for head, length in parts]).to(device)

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: Attention) -> Tensor:
        """Causal attention within each sequence and to what it continues."""
        if self.kept is not None:
            self.kept[layer] = key, value
        if how.window is not None and how.window >= self.longest:
            how = how._replace(window=None)
        if choose_kernel(query, value, how.sinks is not None) == "varlen":
            return self.attend_varlen(query, key, value, how)
        return self.attend_one_by_one(query, key, value, how)

    # First kernel: one call over sequences of any length.

    def attend_varlen(self, query: Tensor, key: Tensor, value: Tensor, how: Attention) -> Tensor:
        """Flash attention aligns the ends of queries and keys, so a shared prompt is gathered before each response."""
        q, k, v = (x.squeeze(0).transpose(0, 1) for x in (query, key, value))  # [S, heads, d]; a gradient is no copy
        if self.after:
            k, v = (GatheredRows.apply(x, self, self.rows(x.device)) for x in (k, v))
        ends_q, ends_k = self.ends(q.device)
        shared: dict[str, Any] = {"enable_gqa": q.shape[1] != k.shape[1]} if WANTS_GQA else {}
        out = varlen_attn(
            q,
            k,
            v,
            ends_q,
            ends_k,
            max(self.lengths),
            self.longest,
            scale=how.scaling,
            window_size=(-1 if how.window is None else how.window - 1, 0),  # tokens to the left, excluding itself
            **shared,
        )
        assert isinstance(out, Tensor)
        return out[None]

    def rows(self, device: torch.device) -> Tensor:
        """The tokens whose keys each sequence needs, one sequence after another."""
        if "rows" not in self._cache:
            bounds = zip(self.heads, self.starts, self.lengths, strict=False)
            wanted = [torch.arange(b, e) for h, s, n in bounds for b, e in ((h.start, h.stop), (s, s + n))]
            self._cache["rows"] = torch.cat(wanted).to(device)
        return self._cache["rows"]

    def ends(self, device: torch.device) -> KeysValues:
        """Where the queries and the keys of each sequence end, with a leading 0; int32, as the kernel requires."""
        if "ends_q" not in self._cache:
            seen = [len(head) + length for head, length in zip(self.heads, self.lengths, strict=True)]
            for name, lengths in (("ends_q", self.lengths), ("ends_k", seen)):
                ends = F.pad(torch.tensor(lengths).cumsum(0), (1, 0)).to(torch.int32)
                self._cache[name] = ends.to(device)
        return self._cache["ends_q"], self._cache["ends_k"]

    # Second kernel: one call per sequence.

    def attend_one_by_one(self, query: Tensor, key: Tensor, value: Tensor, how: Attention) -> Tensor:
        """One call per sequence: the fastest on a CPU, and for float32, which the half-precision kernels lack."""
        # split rather than slices: the gradient of a slice is as long as all sequences together
        queries, keys, values = (x.split(self.lengths, 2) for x in (query, key, value))
        outs = []
        for q, k, v, head in zip(queries, keys, values, self.after or (-1,) * len(queries), strict=True):
            before = (queries[head], keys[head], values[head]) if head >= 0 else None
            outs.append(self.attend_one(q, k, v, before, how).transpose(1, 2))
        return torch.cat(outs, 1)

    def attend_one(
        self, q: Tensor, k: Tensor, v: Tensor, before: tuple[Tensor, Tensor, Tensor] | None, how: Attention
    ) -> Tensor:
        """[1, heads, T, d] attention of one sequence to itself and to what it continues, given as `before`."""
        own, head = q.shape[2], 0
        if before is not None:
            head = before[0].shape[2]
            k, v = torch.cat((before[1], k), 2), torch.cat((before[2], v), 2)
        if how.sinks is not None or (how.window is not None and head + own > how.window):
            return self.attend_in_window(q, k, v, how)
        gqa = q.shape[1] != k.shape[1]
        if before is not None and own * (head + own) <= MASK:
            mask = self.mask(own, head + own, None, q.device)
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=how.scaling, enable_gqa=gqa)
        # No kernel is causal from the end of the keys. Where the mask would be large it costs far less to compute the
        # queries of the prompt once more, and to drop their output.
        q = q if before is None else torch.cat((before[0], q), 2)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=how.scaling, enable_gqa=gqa)
        return out[:, :, head:]

    def attend_in_window(self, q: Tensor, k: Tensor, v: Tensor, how: Attention) -> Tensor:
        """Some queries at a time, each with the keys in its window: with one, memory grows with T, not its square."""
        outs, stop = [], k.shape[2] - q.shape[2]
        for rows in q.split(ROWS, 2):
            start, stop = stop, stop + rows.shape[2]
            first = 0 if how.window is None else max(0, start - how.window + 1)
            mask = self.mask(rows.shape[2], stop - first, how.window, q.device)
            outs.append(masked_attention(rows, k[:, :, first:stop], v[:, :, first:stop], mask, how))
        return torch.cat(outs, 2)

    def mask(self, rows: int, keys: int, window: int | None, device: torch.device) -> Tensor:
        """[T, K] True where the last T of K tokens may attend. Made once for all layers and sequences."""
        name = rows, keys, window
        if name not in self._cache:
            seen = torch.ones(rows, keys, dtype=torch.bool, device=device).tril(keys - rows)
            self._cache[name] = seen if window is None else seen.triu(keys - rows - window + 1)
        return self._cache[name]

    @cached_property
    def _cache(self) -> dict[Any, Any]:
        return {}


class GatheredRows(torch.autograd.Function):
    """The rows of a packed [S, heads, d] that each sequence needs: those of what it continues, then its own.

    Torch's gradient of an index sorts all rows. Here each is its own sequence's once, and a prompt's once a response.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, layout: PackedLayout, rows: Tensor) -> Tensor:  # noqa: D102
        ctx.layout = layout
        return x[rows]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:  # noqa: D102
        heads, again = ctx.layout.heads, dict[range, list[Tensor]]()
        sizes = [n for head, own in zip(heads, ctx.layout.lengths, strict=True) for n in (len(head), own)]
        pieces = grad.split(sizes)
        for head, first in zip(heads, pieces[::2], strict=True):
            if head:
                again.setdefault(head, []).append(first)
        found = torch.cat(pieces[1::2])
        for head, copies in again.items():
            found[head.start : head.stop] += torch.stack(copies).sum(0)
        return found, None, None


def masked_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, how: Attention) -> Tensor:
    """[B, heads, T, d] attention where the mask is True; with sinks the scores are kept, in float32 or wider.

    The cache has one token of each of B rows, and as T the heads that share a key: there is a sink for each of them.
    """
    groups = q.shape[1] // k.shape[1]
    if how.sinks is None:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=how.scaling, enable_gqa=groups > 1)
    wide = torch.promote_types(q.dtype, torch.float32)
    k, v = (x.to(wide).repeat_interleave(groups, 1) for x in (k, v))
    scale = q.shape[3] ** -0.5 if how.scaling is None else how.scaling
    scores = (q.to(wide) @ k.mT * scale).masked_fill(~mask, -torch.inf)
    sinks = how.sinks.to(wide).view(1, scores.shape[1], -1, 1).expand(*scores.shape[:3], 1)
    return (torch.cat((scores, sinks), -1).softmax(-1)[..., :-1] @ v).to(q.dtype)
