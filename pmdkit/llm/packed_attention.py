"""Attention of packed sequences: which token sees which, and three kernels that compute it.

transformers calls `packed_attention` in every attention layer in place of its own attention. `choose_kernel` takes the
first kernel that the device supports:

1. `varlen`: flash attention over sequences of any length, for half precision on NVIDIA GPUs from Ampere on.
2. `flex`: compiled FlexAttention, where flash attention falls short: sinks, or values of another size than keys.
3. `sdpa`: torch's attention once per sequence, on every device and in every precision. Where a mask would be large, or
   there is a window or a sink, attention to blocks of keys is merged; see merged_attention.py.
"""

from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from pmdkit.errors import UsageError
from pmdkit.llm.merged_attention import Attention, KeyBlock, merged_attention

ATTENTION = "pmdkit"  # its name in transformers
MASK = 2**20  # most entries of a mask: 1 MB for all layers together, 4 MB for each layer that needs it in its gradient
WINDOW_ROWS = 512  # queries that share a mask where there is a window: the mask is this plus the window long
KeysValues = tuple[Tensor, Tensor]
Kernel = Literal["varlen", "flex", "sdpa"]


class LayoutMissing(UsageError):
    """Attention was called without a layout."""


class Layout(Protocol):
    """Which token attends to which. Travels through the model's keyword arguments to every attention layer."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: "Attention") -> Tensor:
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
    """The first kernel that the device and the sizes allow.

    Args:
        query: [1, heads, S, d].
        value: [1, heads of keys, S, d of values].
        sinks: whether there are sinks, which flash attention does not support.
    """
    d, d_value = query.shape[3], value.shape[3]
    if query.dtype not in (torch.bfloat16, torch.float16) or capability(query.device) < (8, 0):
        return "sdpa"
    if not sinks and d == d_value and d % 8 == 0 and d <= 256 and has_flash():
        return "varlen"
    return "flex" if min(d, d_value) >= 16 and has_triton() else "sdpa"


def capability(device: torch.device) -> tuple[int, int]:
    """Compute capability of an NVIDIA GPU; (0, 0) for everything else."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" and torch.version.cuda else (0, 0)


@cache
def has_flash() -> bool:
    """Whether this torch was built with flash attention."""
    return torch.backends.cuda.is_flash_attention_available()


@cache
def has_triton() -> bool:
    """Whether torch can compile for GPUs."""
    from torch.utils._triton import has_triton as found

    return bool(found())


@cache
def compiled_flex() -> Any:
    """FlexAttention compiled into one kernel. Uncompiled, it would hold all scores in memory."""
    return torch.compile(flex.flex_attention, dynamic=True)


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
        if not self.lengths or min(self.lengths) < 1:
            raise ValueError(f"lengths is {self.lengths[:8]}; expected at least one sequence, each of at least 1 token")
        if self.after and len(self.after) != len(self.lengths):
            raise ValueError(f"after has {len(self.after)} entries; expected {len(self.lengths)}, one per sequence")
        if any(head >= 0 and self.after[head] >= 0 for head in self.after):
            raise ValueError(
                "after points at a sequence that itself continues another one; only one level is supported"
            )

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
        kernel = choose_kernel(query, value, how.sinks is not None)
        way = {"varlen": self.attend_varlen, "flex": self.attend_flex, "sdpa": self.attend_one_by_one}[kernel]
        return way(query, key, value, how)

    # First kernel: one call over sequences of any length.

    def attend_varlen(self, query: Tensor, key: Tensor, value: Tensor, how: Attention) -> Tensor:
        """Flash attention aligns the ends of queries and keys, so a shared prompt is gathered before each response."""
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
            scale=how.scaling,
            window_size=(-1 if how.window is None else how.window - 1, 0),  # tokens to the left, excluding itself
            enable_gqa=q.shape[1] != k.shape[1],
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

    # Second kernel: compiled from a rule about pairs of tokens.

    def attend_flex(self, query: Tensor, key: Tensor, value: Tensor, how: Attention) -> Tensor:
        """FlexAttention. A shared prompt is read in place. A sink rescales the output of the softmax without it."""
        name = "blocks", how.window
        if name not in self._cache:
            tokens = query.shape[2]
            self._cache[name] = flex.create_block_mask(
                self.rule(how.window, query.device), None, None, tokens, tokens, query.device, _compile=query.is_cuda
            )
        attend = compiled_flex() if query.is_cuda else flex.flex_attention
        wanted = flex.AuxRequest(lse=True) if how.sinks is not None else None
        gqa = query.shape[1] != key.shape[1]
        out = attend(
            query,
            key,
            value,
            block_mask=self._cache[name],
            scale=how.scaling,
            enable_gqa=gqa,
            return_aux=wanted,
        )
        if how.sinks is not None:
            out, aux = out
            out = (out * torch.sigmoid(aux.lse - how.sinks.to(aux.lse)[None, :, None])[..., None]).to(query.dtype)
        return out.transpose(1, 2)

    def rule(self, window: int | None, device: torch.device) -> Any:
        """A predicate: whether a query sees a key, given their places among the packed tokens."""
        lengths = torch.tensor(self.lengths)
        own = torch.arange(len(lengths)).repeat_interleave(lengths).to(device)
        origin = torch.tensor(self.after or [-1] * len(lengths)).repeat_interleave(lengths).to(device)
        place = self.positions(device)

        def sees(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            seen = ((own[q] == own[k]) & (q >= k)) | (origin[q] == own[k])
            return seen if window is None else seen & (place[q] - place[k] < window)

        return sees

    # Third kernel: one call per sequence.

    def attend_one_by_one(self, query: Tensor, key: Tensor, value: Tensor, how: Attention) -> Tensor:
        """One call per sequence: the fastest on a CPU, and for float32, which the half-precision kernels lack."""
        # split rather than slices: the gradient of a slice is as long as all sequences together
        queries, keys, values = (x.split(self.lengths, 2) for x in (query, key, value))
        outs = []
        for q, k, v, head in zip(queries, keys, values, self.after or (-1,) * len(queries), strict=True):
            before = (keys[head], values[head]) if head >= 0 else None
            outs.append(self.attend_one(q, k, v, before, how).transpose(1, 2))
        return torch.cat(outs, 1)

    def attend_one(self, q: Tensor, k: Tensor, v: Tensor, before: KeysValues | None, how: Attention) -> Tensor:
        """[1, heads, T, d] attention of one sequence to itself and to the keys and values of what it continues."""
        own, head = q.shape[2], 0 if before is None else before[0].shape[2]
        if how.window is not None and head + own > how.window:
            return self.attend_in_window(q, k, v, before, how)
        if how.sinks is not None or (before is not None and own * (head + own) > MASK):
            parts = [KeyBlock(k, v, causal=True)]
            return merged_attention(q, [KeyBlock(*before), *parts] if before is not None else parts, how)
        mask = None
        if before is not None:
            mask = self.mask(own, head, q.device)
            k, v = torch.cat((before[0], k), 2), torch.cat((before[1], v), 2)
        gqa = q.shape[1] != k.shape[1]
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=mask is None, scale=how.scaling, enable_gqa=gqa
        )

    def attend_in_window(self, q: Tensor, k: Tensor, v: Tensor, before: KeysValues | None, how: Attention) -> Tensor:
        """Some queries at a time, each attending only to keys in its window: memory grows with T, not its square."""
        assert how.window is not None
        head = 0
        if before is not None:
            head = before[0].shape[2]
            k, v = torch.cat((before[0], k), 2), torch.cat((before[1], v), 2)
        outs, start = [], 0
        for rows in q.split(WINDOW_ROWS, 2):
            stop = start + rows.shape[2]
            first, last = max(0, head + start - how.window + 1), head + stop
            mask = self.window_mask(rows, last - first, how.window)
            outs.append(merged_attention(rows, [KeyBlock(k[:, :, first:last], v[:, :, first:last], mask=mask)], how))
            start = stop
        return torch.cat(outs, 2)

    def mask(self, length: int, head: int, device: torch.device) -> Tensor:
        """[T, L + T] True where a token of a sequence may attend. Made once for all layers."""
        if (length, head) not in self._cache:
            self._cache[length, head] = torch.ones(length, head + length, dtype=torch.bool, device=device).tril(head)
        return self._cache[length, head]

    def window_mask(self, q: Tensor, keys: int, window: int) -> Tensor:
        """[T, K] 0 where the last T of K tokens may attend, else -inf. Made once for all layers and sequences."""
        rows = q.shape[2]
        name = rows, keys, window
        if name not in self._cache:
            seen = torch.ones(rows, keys, dtype=torch.bool, device=q.device)
            seen = seen.tril(keys - rows).triu(keys - rows - window + 1)
            self._cache[name] = torch.zeros(rows, keys, dtype=q.dtype, device=q.device).masked_fill(~seen, -torch.inf)
        return self._cache[name]

    @cached_property
    def _cache(self) -> dict[Any, Any]:
        return {}
