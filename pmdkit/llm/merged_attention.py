r"""Attention to parts of the keys, merged by log-sum-exp into one softmax over all, without concatenation.

Let $o_i$ be the output and $\ell_i$ the log-sum-exp of the scores over the $i$-th part of the keys. Each head may have
a sink $s$, a score without a value:

$$ o = \sum_i e^{\ell_i - \ell} o_i, \quad \ell = \log\Big(\sum_i e^{\ell_i} + e^s\Big) $$

The gradient needs only each part's own backward pass, given the $o$ and $\ell$ of the whole: it forms
$e^{s_{jk} - \ell}$ and $\langle \partial o, o \rangle$, which are those of one softmax over everything.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Attention(NamedTuple):
    """The attention options of a layer.

    Attributes:
        scaling: factor of the scores; None for 1 / sqrt(d).
        window: tokens that a query sees, itself included; None for all before it.
        sinks: [heads] scores without a value that take their share of every softmax.
    """

    scaling: float | None = None
    window: int | None = None
    sinks: Tensor | None = None


class KeyBlock(NamedTuple):
    """Some of the keys that queries attend to.

    Attributes:
        key, value: [1, heads of keys, K, d].
        causal: the i-th query sees only the keys up to the i-th.
        mask: [T, K] that is added to the scores.
    """

    key: Tensor
    value: Tensor
    causal: bool = False
    mask: Tensor | None = None


def merged_attention(query: Tensor, parts: Sequence[KeyBlock], how: Attention) -> Tensor:
    """[1, heads, T, d] output of one softmax over all parts, and over the sinks if there are any."""
    scale = query.shape[3] ** -0.5 if how.scaling is None else how.scaling
    options = [(part.causal, part.mask) for part in parts]
    tensors = [x for part in parts for x in (part.key, part.value)]
    out: Tensor = MergedAttention.apply(scale, options, query, how.sinks, *tensors)
    return out


class MergedAttention(torch.autograd.Function):
    """Each part by its own kernel, then merged; see the equations at the top."""

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
    """[1, heads, T, d] output of a softmax over these keys alone, and [1, heads, T] its log-sum-exp."""
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
    """Gradients with respect to the q, k and v of one part, given the output and the log-sum-exp of the whole."""
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
    """Whether torch has a kernel that stores no scores and returns their log-sum-exp: on CPUs only."""
    return q.device.type == "cpu" and q.shape[3] == v.shape[3]


def part_scores(q: Tensor, k: Tensor, scale: float, causal: bool, mask: Tensor | None) -> Tensor:
    """[1, heads, T, K] scores in float32 or wider."""
    wide = torch.promote_types(q.dtype, torch.float32)
    scores = (q.to(wide) @ k.to(wide).repeat_interleave(q.shape[1] // k.shape[1], 1).mT) * scale
    if causal:
        future = torch.ones(scores.shape[2:], dtype=torch.bool, device=q.device).triu(1)
        return scores.masked_fill_(future, -torch.inf)
    return scores if mask is None else scores + mask
