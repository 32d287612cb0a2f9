r"""Attention of packed sequences: who attends to whom, and which kernel computes it.

transformers calls `packed_attention` in every attention layer in place of its own. The layout that travels with a
forward pass says which token sees which; `choose_kernel` takes the first of three ways that the device has:

1. `varlen`: flash attention over sequences of any lengths, for half precision on NVIDIA's GPUs from Ampere on.
2. `flex`: FlexAttention, compiled, where flash attention lacks something: sinks, or values of another size than keys.
3. `sdpa`: torch's attention once per sequence, on every device and in every precision. Where a mask would be long, or
   there is a window or a sink, attention to parts of the keys is merged by log-sum-exp.

With the output $o_i$ and the log-sum-exp $\ell_i$ of the scores over the $i$-th part of the keys, and a sink $s$, a
score without a value that each head may have:

$$ o = \sum_i e^{\ell_i - \ell} o_i, \quad \ell = \log\Big(\sum_i e^{\ell_i} + e^s\Big) $$

The gradient needs no more than each part's own backward pass, given $o$ and $\ell$ of the whole: it forms
$e^{s_{jk} - \ell}$ and $\langle \partial o, o \rangle$, which are those of one softmax over everything.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Literal, NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.attention import flex_attention as flex
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from pmdkit.errors import UsageError

ATTENTION = "pmdkit"  # its name in transformers
MASK = 2**20  # entries of a mask, at most: 1 MB for all layers, 4 MB for each that a gradient needs it in
WINDOW_ROWS = 512  # queries that share a mask where there is a window: its length is this and the window
KeysValues = tuple[Tensor, Tensor]
Kernel = Literal["varlen", "flex", "sdpa"]


class LayoutMissing(UsageError):
    """Attention was called without a layout."""


class Layout(Protocol):
    """Which token attends to which. Travels through the model's keyword arguments to every attention layer."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: "Attention") -> Tensor:
        """[1, S, heads, d] from query [1, heads, S, d] and key and value [1, heads of keys, S, d]."""


class Attention(NamedTuple):
    """What a layer wants of its attention.

    Attributes:
        scaling: of the scores; None for 1 / sqrt(d).
        window: tokens that a query sees, itself included; None for all before it.
        sinks: [heads] a score without a value that takes its share of every softmax.
    """

    scaling: float | None = None
    window: int | None = None
    sinks: Tensor | None = None


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
    """What transformers calls in every attention layer."""
    if layout is None:
        raise LayoutMissing(
            "the model's attention is pmdkit's, which needs a layout: call pmdkit.llm.packing.forward_packed, "
            "or model.set_attn_implementation('sdpa') for a forward pass of transformers"
        )
    wrong = [name for name in ("softcap", "position_bias") if others.get(name) is not None]
    if wrong or dropout:
        raise UsageError(
            f"the model's attention has {wrong or 'dropout'}; packed attention has not: take another model"
        )
    assert attention_mask is None, "transformers made a mask although the layout says who attends to whom"
    layer = module.layer_idx
    assert isinstance(layer, int)
    how = Attention(scaling, others.get("sliding_window"), others.get("s_aux"))
    return layout.attend(layer, query, key, value, how), None


AttentionInterface.register(ATTENTION, packed_attention)


def choose_kernel(query: Tensor, value: Tensor, sinks: bool) -> Kernel:
    """The first way that the device and the sizes allow.

    Args:
        query: [1, heads, S, d].
        value: [1, heads of keys, S, d of values].
        sinks: there are sinks, which flash attention does not know.
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
    """FlexAttention as one kernel. Not compiled it would hold all scores."""
    return torch.compile(flex.flex_attention, dynamic=True)


@dataclass(frozen=True)
class PackedLayout:
    """Sequences one after another.

    Attributes:
        lengths: tokens of each sequence, in the order in which they stand.
        after: for each sequence the index of the one that it goes on from, or -1. A prompt that several responses go
            on from is read once: they attend to it and to themselves. It must not go on from another one itself.
        kept: keys and values of each layer, as they were computed, where a dictionary is given.
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

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, how: Attention) -> Tensor:
        """Causal attention within each sequence and what it goes on from."""
        if self.kept is not None:
            self.kept[layer] = key, value
        if how.window is not None and how.window >= self.longest:
            how = how._replace(window=None)
        kernel = choose_kernel(query, value, how.sinks is not None)
        way = {"varlen": self.attend_varlen, "flex": self.attend_flex, "sdpa": self.attend_one_by_one}[kernel]
        return way(query, key, value, how)

    # First way: one kernel over sequences of any lengths.

    def attend_varlen(self, query: Tensor, key: Tensor, value: Tensor, how: Attention) -> Tensor:
        """It aligns the ends of queries and keys, so a prompt that is shared is gathered before each response."""
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
            window_size=(-1 if how.window is None else how.window - 1, 0),  # tokens to the left, without itself
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
        """Where the queries and the keys of each sequence end, from 0, int32 as the kernel wants them."""
        if "ends_q" not in self._cache:
            seen = [len(head) + length for head, length in zip(self.heads, self.lengths, strict=True)]
            for name, lengths in (("ends_q", self.lengths), ("ends_k", seen)):
                ends = F.pad(torch.tensor(lengths).cumsum(0), (1, 0)).to(torch.int32)
                self._cache[name] = ends.to(device)
        return self._cache["ends_q"], self._cache["ends_k"]

    # Second way: a rule about pairs of tokens, from which a kernel is compiled.

    def attend_flex(self, query: Tensor, key: Tensor, value: Tensor, how: Attention) -> Tensor:
        """A prompt that is shared is read where it stands. A sink scales what the softmax without it gives."""
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
        """Whether a query sees a key, by their places among the packed tokens."""
        lengths = torch.tensor(self.lengths)
        own = torch.arange(len(lengths)).repeat_interleave(lengths).to(device)
        origin = torch.tensor(self.after or [-1] * len(lengths)).repeat_interleave(lengths).to(device)
        place = self.positions(device)

        def sees(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
            seen = ((own[q] == own[k]) & (q >= k)) | (origin[q] == own[k])
            return seen if window is None else seen & (place[q] - place[k] < window)

        return sees

    # Third way: a call per sequence.

    def attend_one_by_one(self, query: Tensor, key: Tensor, value: Tensor, how: Attention) -> Tensor:
        """What a CPU does best, and what kernels for half precision cannot do in float32."""
        # split, not a slice each: the gradient of a slice is as long as all sequences together
        queries, keys, values = (x.split(self.lengths, 2) for x in (query, key, value))
        outs = []
        for q, k, v, head in zip(queries, keys, values, self.after or (-1,) * len(queries), strict=True):
            before = (keys[head], values[head]) if head >= 0 else None
            outs.append(self.attend_one(q, k, v, before, how).transpose(1, 2))
        return torch.cat(outs, 1)

    def attend_one(self, q: Tensor, k: Tensor, v: Tensor, before: KeysValues | None, how: Attention) -> Tensor:
        """[1, heads, T, d] of one sequence and the keys and values of what it goes on from."""
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
        """Some queries at a time, each to no more keys than their windows hold: memory grows with T, not its square."""
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
        """[T, L + T] True where a token of a sequence may look. Made once for all layers."""
        if (length, head) not in self._cache:
            self._cache[length, head] = torch.ones(length, head + length, dtype=torch.bool, device=device).tril(head)
        return self._cache[length, head]

    def window_mask(self, q: Tensor, keys: int, window: int) -> Tensor:
        """[T, K] 0 where one of the last T of K tokens may look, else -inf. Made once for all layers and sequences."""
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


# Attention to parts of the keys, merged: the softmax over all of them and a sink, with nothing long held.


class KeyBlock(NamedTuple):
    """Some of the keys that queries attend to.

    Attributes:
        key, value: [1, heads of keys, K, d].
        causal: the i-th query sees keys up to the i-th only.
        mask: [T, K] added to the scores.
    """

    key: Tensor
    value: Tensor
    causal: bool = False
    mask: Tensor | None = None


def merged_attention(query: Tensor, parts: Sequence[KeyBlock], how: Attention) -> Tensor:
    """[1, heads, T, d] of one softmax over all parts, and the sinks where there are some."""
    scale = query.shape[3] ** -0.5 if how.scaling is None else how.scaling
    options = [(part.causal, part.mask) for part in parts]
    tensors = [x for part in parts for x in (part.key, part.value)]
    out: Tensor = MergedAttention.apply(scale, options, query, how.sinks, *tensors)
    return out


class MergedAttention(torch.autograd.Function):
    """Parts by their own kernels; see the equations at the top."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any, scale: float, options: list[tuple[bool, Tensor | None]], q: Tensor, sinks: Tensor | None, *kv: Tensor
    ) -> Tensor:
        found = [
            part_forward(q, k, v, scale, causal, mask)
            for (causal, mask), k, v in zip(options, kv[::2], kv[1::2], strict=True)
        ]
        sums = [lse for _, lse in found]
        if sinks is not None:
            sums.append(sinks.to(sums[0])[None, :, None].expand_as(sums[0]))
        # l = log sum_i exp(l_i),  o = sum_i exp(l_i - l) o_i
        lse = torch.stack(sums).logsumexp(0)
        wide = torch.zeros_like(found[0][0], dtype=lse.dtype)
        for out, own in found:
            wide.addcmul_(out, (own - lse).exp()[..., None])
        merged = wide.to(q.dtype)
        ctx.save_for_backward(q, sinks, merged, lse, *kv)
        ctx.scale, ctx.options = scale, options
        return merged

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # noqa: D102
        q, sinks, out, lse, *kv = ctx.saved_tensors
        grad_q, grads = torch.zeros_like(q, dtype=lse.dtype), []
        for (causal, mask), k, v in zip(ctx.options, kv[::2], kv[1::2], strict=True):
            of_q, of_k, of_v = part_backward(grad, q, k, v, out, lse, ctx.scale, causal, mask)
            grad_q += of_q
            grads += [of_k, of_v]
        of_sinks = None
        if sinks is not None:  # its share of the softmax times (0 - <do, o>): it has no value
            inner = (grad.to(lse.dtype) * out).sum(-1)
            of_sinks = -((sinks.to(lse)[None, :, None] - lse).exp() * inner).sum((0, 2)).to(sinks.dtype)
        return None, None, grad_q.to(q.dtype), of_sinks, *grads


def part_forward(
    q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool, mask: Tensor | None
) -> tuple[Tensor, Tensor]:
    """[1, heads, T, d] of a softmax over these keys alone, and [1, heads, T] its log-sum-exp."""
    if in_blocks(q, v):
        out, lse = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            q, k, v, 0.0, causal, attn_mask=mask, scale=scale
        )
        return out, lse
    scores = part_scores(q, k, scale, causal, mask)
    lse = scores.logsumexp(-1)
    groups = q.shape[1] // k.shape[1]
    out = (scores - lse[..., None]).exp_() @ v.to(scores.dtype).repeat_interleave(groups, 1)
    return out.to(q.dtype), lse


def part_backward(
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    scale: float,
    causal: bool,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients by q, k and v of one part, given the output and the log-sum-exp of the whole."""
    if in_blocks(q, v):
        grads: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
            grad.contiguous(), q, k, v, out, lse, 0.0, causal, attn_mask=mask, scale=scale
        )
        return grads
    # p = exp(s - l),  dv = p^T do,  ds = p (do v^T - <do, o>),  dq = ds k,  dk = ds^T q
    groups, wide = q.shape[1] // k.shape[1], lse.dtype
    p = (part_scores(q, k, scale, causal, mask) - lse[..., None]).exp_()
    do, keys, values = grad.to(wide), k.to(wide).repeat_interleave(groups, 1), v.to(wide).repeat_interleave(groups, 1)
    of_v = p.mT @ do
    ds = p.mul_(do @ values.mT - (do * out).sum(-1, keepdim=True)).mul_(scale)
    of_q, of_k = ds @ keys, ds.mT @ q.to(wide)
    of_k, of_v = (x.unflatten(1, (-1, groups)).sum(2) for x in (of_k, of_v))
    return of_q.to(q.dtype), of_k.to(k.dtype), of_v.to(v.dtype)


def in_blocks(q: Tensor, v: Tensor) -> bool:
    """Whether torch has a kernel here that holds no scores and gives their log-sum-exp: on CPUs."""
    return q.device.type == "cpu" and q.shape[3] == v.shape[3]


def part_scores(q: Tensor, k: Tensor, scale: float, causal: bool, mask: Tensor | None) -> Tensor:
    """[1, heads, T, K] in float32 or wider."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = (q.to(wide) @ k.to(wide).repeat_interleave(q.shape[1] // k.shape[1], 1).mT) * scale
    if causal:
        future = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).triu(1)
        return scores.masked_fill_(future, -torch.inf)
    return scores if mask is None else scores + mask
