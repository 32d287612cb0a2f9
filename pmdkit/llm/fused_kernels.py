"""Kernels for GPUs that read and write once what plain torch reads and writes several times.

Each is a short function of torch that `torch.compile` makes one kernel of. It is an operator with a name, so that a
rehearsal counts one kernel. On a CPU, and where nothing compiles, models compute what they always do, to the bit.
"""

import warnings
from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.activations import SiLUActivation
from transformers.models.llama import modeling_llama as llama

TOKENS = 64  # fewer wait for the host, as one token of each row in a rollout does, and a compiled call costs it more


def one_kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """The operator `pmdkit::NAME`: the function compiled, for all sizes, without gradient. It returns new tensors."""
    def run(*args: Any) -> Any:
        with torch.no_grad():
            return compiled(function)(*args)

    schema = torch.library.infer_schema(function, mutates_args=())
    operator = torch.library.custom_op(f"pmdkit::{function.__name__}", run, mutates_args=(), schema=schema)
    operator.register_fake(function)
    return operator


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as `torch.compile` makes it, at its first use: the compiler is half of torch, and slow to import."""
    return torch.compile(function, dynamic=True)


@cache
def compiles(device: torch.device) -> bool:
    """Whether kernels are used on a device: a GPU for which `torch.compile` works here. If not, a warning says why."""
    if device.type != "cuda":
        return False
    try:
        swiglu(*torch.ones(2, 2, 2, device=device))
    except Exception as problem:  # of dynamo, inductor, Triton, or the C compiler that Triton calls
        warnings.warn(f"torch.compile fails on {device}, so updates are slower: {problem}", stacklevel=2)
        return False
    return True


# The head's passes over its logits: one to score, one for the gradient.


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


# The layers' passes over activations.


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
def rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """[B, heads, S, d] queries or keys, rotated by their positions; cos and sin [B, 1, S, d] have two equal halves."""
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


class SwiGLU(torch.autograd.Function):
    """`swiglu` with gradient."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor) -> Any:  # noqa: D102
        ctx.save_for_backward(gate, up)
        return swiglu(gate, up)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # noqa: D102
        return swiglu_gradient(grad, *ctx.saved_tensors)


class Rotary(torch.autograd.Function):
    """`rotary` with gradient, which turns back by the same angles."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Any:  # noqa: D102
        ctx.save_for_backward(cos, sin)
        return rotary(x, cos, sin)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:  # noqa: D102
        cos, sin = ctx.saved_tensors
        return rotary(grad, cos, -sin), None, None


class FusedNorm:
    """Base class put before a Llama RMSNorm: torch's kernel for what eight kernels did in float32.

    The same order of casts: normalised in float32, rounded to the dtype of the input, multiplied by the weight.
    """

    def forward(self: Any, x: Tensor) -> Any:
        """The norm; on other devices that of the class itself, to the bit."""
        if x.is_cuda:
            return self.weight * F.rms_norm(x, x.shape[-1:], eps=self.variance_epsilon)
        return super().forward(x)  # type: ignore[misc]  # of the norm's class, which comes next


class FusedMLP:
    """Base class put before a Llama MLP: `swiglu` between its products, where its activation is silu."""

    def forward(self: Any, x: Tensor) -> Any:
        """The MLP; on other devices that of the class itself, to the bit."""
        if x.shape[-2] >= TOKENS and isinstance(self.act_fn, SiLUActivation) and compiles(x.device):
            return self.down_proj(SwiGLU.apply(self.gate_proj(x), self.up_proj(x)))
        return super().forward(x)  # type: ignore[misc]  # of the MLP's class, which comes next


def apply_rotary_pos_emb(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, unsqueeze_dim: int = 1
) -> tuple[Tensor, Tensor]:
    """What attention layers call under this name; on other devices Llama's own, to the bit."""
    if q.shape[-2] < TOKENS or unsqueeze_dim != 1 or not compiles(q.device):
        return llama.apply_rotary_pos_emb(q, k, cos, sin, unsqueeze_dim)  # type: ignore[no-any-return]
    cos, sin = cos[:, None], sin[:, None]
    return Rotary.apply(q, cos, sin), Rotary.apply(k, cos, sin)


def use_fused_kernels(model: PreTrainedModel) -> None:
    """Permanently let a model use these kernels, in every layer with Llama's formula, to the instruction."""
    for module in model.modules():
        module.__class__ = fused_class(type(module))  # type: ignore[arg-type]  # a class has a hash


@cache
def fused_class(kind: type[nn.Module]) -> type[nn.Module]:
    """A subclass that uses a kernel, or the class itself. Other models copy Llama's classes and functions."""
    forward: Any = kind.forward
    if is_llama(forward, llama.LlamaRMSNorm.forward):
        return type(kind.__name__, (FusedNorm, kind), {})
    if is_llama(forward, llama.LlamaMLP.forward):
        return type(kind.__name__, (FusedMLP, kind), {})
    called, names = getattr(getattr(forward, "__code__", None), "co_names", ()), getattr(forward, "__globals__", {})
    rotates = ("apply_rotary_pos_emb", "rotate_half")
    if rotates[0] in called and all(is_llama(names.get(name), getattr(llama, name)) for name in rotates):
        own = FunctionType(forward.__code__, {**names, rotates[0]: apply_rotary_pos_emb}, "forward")
        own.__defaults__ = forward.__defaults__
        return type(kind.__name__, (kind,), {"forward": own})
    return kind


def is_llama(function: Any, of_llama: Any) -> bool:
    """Whether a function has the instructions, names and numbers of one of Llama's."""

    def parts(code: CodeType) -> tuple[Any, ...]:
        return code.co_code, code.co_names, [x for x in code.co_consts if not isinstance(x, str)]

    return hasattr(function, "__code__") and parts(function.__code__) == parts(of_llama.__code__)
