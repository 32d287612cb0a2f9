"""Kernels for GPUs that read and write once what plain torch reads and writes several times.

Each is a short function of torch that `torch.compile` makes one kernel of, and a named operator, which a rehearsal
counts once. On a CPU models compute what they always do, to the bit.
"""

import warnings
from collections.abc import Callable
from functools import cache
from types import FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import SiLUActivation
from transformers.integrations import moe
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeExperts

TOKENS = 64  # fewer wait for the host, as one token of each row in a rollout does, and a compiled call costs it more


def one_kernel(function: Callable[..., Any]) -> Any:
    """The operator `pmdkit::NAME`: the function compiled for all sizes, without gradient. It returns new tensors."""
    operator = torch.library.custom_op(
        f"pmdkit::{function.__name__}",
        torch.no_grad()(lambda *given: compiled(function)(*given)),
        mutates_args=(),
        schema=torch.library.infer_schema(function, mutates_args=()),
    )
    operator.register_fake(function)
    return operator


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as `torch.compile` makes it, or else as it is, with a warning that says why."""
    made = torch.compile(function, dynamic=True)  # at its first use: the compiler is half of torch, and slow to import

    def run(*given: Any) -> Any:
        nonlocal made
        try:
            return made(*given)
        except Exception as problem:  # of dynamo, inductor, Triton, or the C compiler that Triton calls
            if made is function or isinstance(problem, torch.OutOfMemoryError):
                raise
            warnings.warn(f"torch.compile fails here, so updates are slower: {problem}", stacklevel=2)
            made = function
            return function(*given)

    return run


def fuses(x: Tensor) -> bool:
    """Whether kernels are used for activations [..., S, d]."""
    return x.is_cuda and x.shape[-2] >= TOKENS


@one_kernel
def logit_statistics(z: Tensor, targets: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
    """[m] max z, s and log p(y) of logits [m, V], see `pmdkit.llm.head.ChunkedHead`; the logits are read once."""
    scaled = z / temperature
    largest = scaled.amax(1, keepdim=True)
    sums = (scaled - largest).exp().sum(1, keepdim=True)
    z_y = z.gather(1, targets[:, None]) / temperature
    return largest[:, 0], sums[:, 0], (z_y - largest - sums.log())[:, 0]


@one_kernel
def logit_gradient(
    z: Tensor, targets: Tensor, largest: Tensor, sums: Tensor, scale: Tensor, temperature: float, dtype: torch.dtype
) -> Tensor:
    """[m, V] the gradient of the logits in `dtype`, scale (e - s 1_y); scale is [m]."""
    e = (z / temperature - largest[:, None]).exp()
    is_target = torch.arange(z.shape[1], device=z.device) == targets[:, None]
    return (torch.where(is_target, e - sums[:, None], e) * scale[:, None]).to(dtype)


@one_kernel
def swiglu(gate: Tensor, up: Tensor) -> Tensor:
    """silu(gate) * up, elementwise."""
    return F.silu(gate) * up


@one_kernel
def swiglu_gradient(grad: Tensor, gate: Tensor, up: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of gate and up; silu(g) is g sigmoid(g), and its slope sigmoid(g) (1 + g (1 - sigmoid(g)))."""
    g = gate.to(torch.promote_types(gate.dtype, torch.float32))
    s = g.sigmoid()
    return (grad * up * s * (1 + g * (1 - s))).to(gate.dtype), (grad * g * s).to(up.dtype)


@one_kernel
def weighted_swiglu(gate_up: Tensor, weights: Tensor, order: Tensor) -> Tensor:
    """[S, I] rows w silu(gate) * up of products [S, 2I]; row s has the weight order[s] of [S]."""
    gate, up = gate_up.chunk(2, -1)
    return (F.silu(gate) * up * weights[order, None]).to(gate_up.dtype)


@one_kernel
def weighted_swiglu_gradient(grad: Tensor, gate_up: Tensor, weights: Tensor, order: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of the products and, in the order of the rows, of the weights; see `swiglu_gradient`."""
    gate, up = gate_up.chunk(2, -1)
    g = gate.to(torch.promote_types(gate.dtype, torch.float32))
    s = g.sigmoid()
    w = weights[order, None]
    of_up = grad * g * s
    of_gate = grad * up * s * (1 + g * (1 - s))
    # the last operator on both halves, so that the compiler lets one loop write them and sum the third result
    of_both = torch.cat(((of_gate * w).to(gate.dtype), (of_up * w).to(up.dtype)), -1)
    return of_both, (of_up * up).sum(-1).to(weights.dtype)


@one_kernel
def rows_of_tokens(x: Tensor, tokens: Tensor, places: Tensor) -> Tensor:
    """[S, d] row s is that of token tokens[s] of x [T, d]; the k rows of a token stand at its `places` [T, k]."""
    return x[tokens]


@one_kernel
def sum_of_rows(rows: Tensor, tokens: Tensor, places: Tensor) -> Tensor:
    """[T, d] the sum of each token's k rows of [S, d]: as matrices, this and `rows_of_tokens` are transposes."""
    return rows[places].sum(1)


@one_kernel
def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[B, heads, S, d] queries or keys, rotated by their positions; cos and sin [B, 1, S, d] have two equal halves."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


swiglu.register_autograd(
    lambda ctx, grad: swiglu_gradient(grad, *ctx.saved_tensors),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def weighted_back(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    """The gradient of `weighted_swiglu`, that of the weights in their own order."""
    gate_up, weights, order = ctx.saved_tensors
    of_products, of_rows = weighted_swiglu_gradient(grad, gate_up, weights, order)
    return of_products, torch.empty_like(weights).scatter_(0, order, of_rows), None


weighted_swiglu.register_autograd(
    weighted_back, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)
for one, other in ((rows_of_tokens, sum_of_rows), (sum_of_rows, rows_of_tokens)):
    one.register_autograd(
        lambda ctx, grad, other=other: (other(grad, *ctx.saved_tensors), None, None),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[1:]),
    )


def turn_back(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    """The gradient of `rotary`: by the same angles, the other way."""
    cos, sin = ctx.saved_tensors  # read once, as checkpointing demands
    return rotary(grad, cos, -sin), None, None


rotary.register_autograd(turn_back, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs[1:]))


# In place of functions of Llama and Qwen3, which other models copy. On other devices those are called, to the bit.


def norm_forward(self: Any, x: Tensor) -> Any:
    """RMSNorm in torch's kernel: normalised in float32, rounded to the input's dtype, multiplied by the weight."""
    if x.is_cuda:
        return self.weight * F.rms_norm(x, x.shape[-1:], eps=self.variance_epsilon)
    return llama.LlamaRMSNorm.forward(self, x)


def mlp_forward(self: Any, x: Tensor) -> Any:
    """The MLP with `swiglu` between its products, if its activation is silu."""
    if fuses(x) and isinstance(self.act_fn, SiLUActivation):
        return self.down_proj(swiglu(self.gate_proj(x), self.up_proj(x)))
    return llama.LlamaMLP.forward(self, x)


def experts_forward(original: Callable[..., Any]) -> Callable[..., Any]:
    """The forward pass of a layer's experts, if their activation is silu, in five kernels: two are products.

    Each of T tokens visits k experts, so there are S = T k rows, sorted by expert. A row's weight multiplies the input
    of the last product instead of its output, which is the same: the product is linear, and its input is shorter.
    """

    def forward(self: Any, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Any:
        if not (fuses(hidden_states) and isinstance(self.act_fn, SiLUActivation)):
            return original(self, hidden_states, top_k_index, top_k_weights)
        experts, order = top_k_index.flatten().sort()
        tokens = order // top_k_index.shape[1]
        places = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=order.device))
        every = torch.arange(self.num_experts, device=order.device)
        ends = torch.searchsorted(experts, every, right=True, out_int32=True)
        where = tokens, places.view_as(top_k_index)
        gate_up = moe._grouped_linear(rows_of_tokens(hidden_states, *where), self.gate_up_proj, ends)
        gated = weighted_swiglu(gate_up, top_k_weights.flatten(), order)
        return sum_of_rows(moe._grouped_linear(gated, self.down_proj, ends), *where).to(hidden_states.dtype)

    return forward


def rotate_both(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1) -> Any:
    """`apply_rotary_pos_emb`."""
    if fuses(q) and unsqueeze_dim == 1:
        return rotary(q, cos[:, None], sin[:, None]), rotary(k, cos[:, None], sin[:, None])
    return llama.apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim)


def use_fused_kernels(model: PreTrainedModel) -> None:
    """Permanently let a model use these kernels, in layers that have the very instructions of those functions."""
    for module in model.modules():
        module.__class__ = fused_class(type(module))  # type: ignore[arg-type]  # a class has a hash


@cache
def fused_class(kind: type[nn.Module]) -> type[nn.Module]:
    """A subclass that uses a kernel, or the class itself."""
    forward: Any = kind.forward
    names, called = getattr(forward, "__globals__", {}), getattr(getattr(forward, "__code__", None), "co_names", ())
    functions = {name: getattr(llama, name) for name in ("apply_rotary_pos_emb", "rotate_half")}
    if is_copy(forward, llama.LlamaRMSNorm.forward):
        forward = norm_forward
    elif is_copy(forward, llama.LlamaMLP.forward):
        forward = mlp_forward
    elif is_copy(getattr(forward, "__wrapped__", None), Qwen3MoeExperts.forward.__wrapped__):  # type: ignore[attr-defined]
        forward = experts_forward(forward)
    elif "apply_rotary_pos_emb" in called and all(is_copy(names.get(name), functions[name]) for name in functions):
        given = {**names, "apply_rotary_pos_emb": rotate_both}
        forward = FunctionType(forward.__code__, given, "forward", forward.__defaults__)
    return kind if forward is kind.forward else type(kind.__name__, (kind,), {"forward": forward})


def is_copy(function: Any, original: Any) -> bool:
    """Whether a function has the instructions, names and constants of another; their docstrings may differ."""

    def parts(code: Any) -> tuple[Any, ...]:
        return code.co_code, code.co_names, [x for x in code.co_consts if not isinstance(x, str)]

    return hasattr(function, "__code__") and parts(function.__code__) == parts(original.__code__)
