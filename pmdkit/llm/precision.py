"""Mixed precision: float32 weights, gradients and optimizer; forward and backward passes in bfloat16.

With two or more processes, FSDP2 gathers weights in bfloat16 and adds gradients in float32: over processes and over the
passes of an update. Each pass gives it bfloat16 gradients, that of the head included, which is summed over the tokens
of the pass in float32 and rounded once. A process that holds whole weights casts them here, one block of the model at a
time, and computes the same products in the same precision; its head's gradient is never rounded. Neither uses autocast,
which keeps a copy of every weight until the forward pass ends and gives attention float32 queries.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.models.llama.modeling_llama import LlamaRMSNorm


def cast_model(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """Permanently cast the model's weights. Buffers stay: the inverse frequencies of positions need float32."""
    for weight in model.parameters():
        weight.data = weight.data.to(dtype)
    return model


def cast_blocks(model: PreTrainedModel) -> None:
    """Permanently make every block compute in bfloat16 or float16 when its inputs have that dtype; else no change."""
    # the classes of blocks, which transformers lists for FSDP
    names = {name for module in model.modules() for name in getattr(module, "_no_split_modules", None) or ()}
    for module in model.modules():
        if type(module).__name__ in names:
            module.__class__ = casting_class(type(module))  # type: ignore[arg-type]  # a class has a hash


def outside_blocks(model: PreTrainedModel) -> list[nn.Module]:
    """Modules outside all blocks, such as the embedding and the last norm.

    The head is excluded: its weight is used as it is, so that its gradient, a sum over thousands of tokens, is float32.
    Under FSDP2 it is the gathered bfloat16 weight, and that sum is rounded.
    """
    inside = {id(part) for module in model.modules() if isinstance(module, CastingBlock) for part in module.modules()}
    head = model.get_output_embeddings()
    return [module for module in model.modules() if module is not head and id(module) not in inside]


class CastingBlock:
    """Base class put before a block's own class: the same forward pass, with weights in the dtype of its inputs.

    A class rather than a hook: transformers recomputes activations by calling `forward`, and hooks run outside of that.
    """

    gradient_checkpointing: bool
    training: bool

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The block's own forward pass."""
        assert isinstance(self, nn.Module)
        dtypes = {x.dtype for x in (*args, *kwargs.values()) if isinstance(x, Tensor)}
        dtype = next((half for half in (torch.bfloat16, torch.float16) if half in dtypes), None)
        with ExitStack() as stack:
            if dtype is not None:
                casts = stack.enter_context(cast_weights(list(self.modules()), dtype))
                # when activations are recomputed nothing is saved anyway, and torch's own hooks must see what would be
                if torch.is_grad_enabled() and not (getattr(self, "gradient_checkpointing", False) and self.training):
                    stack.enter_context(cast_again(casts))
            return super().forward(*args, **kwargs)  # type: ignore[misc]  # of the block's class, which comes next


@cache
def casting_class(kind: type[nn.Module]) -> type[nn.Module]:
    """A subclass of a block's class that casts its weights on each call, as FSDP2 subclasses the class of a module."""
    if issubclass(kind, CastingBlock):
        return kind
    # its own `forward`, so that transformers wraps this one too when it recomputes activations
    members = {"forward": CastingBlock.forward, "__module__": kind.__module__}
    return type(kind.__name__, (CastingBlock, kind), members)


class FusedNorm:
    """Base class put before a Llama RMSNorm on NVIDIA GPUs: torch's kernel for what eight kernels did in float32.

    The same order of casts: normalised in float32, rounded to the dtype of the input, multiplied by the weight.
    """

    def forward(self: Any, x: Tensor) -> Any:
        """The norm; on other devices that of the class itself, to the bit."""
        if x.is_cuda:
            return self.weight * F.rms_norm(x, x.shape[-1:], eps=self.variance_epsilon)
        return super().forward(x)  # type: ignore[misc]  # of the norm's class, which comes next


def fuse_norms(model: PreTrainedModel) -> None:
    """Permanently use torch's kernel in every norm with Llama's formula, which other models copy to the instruction."""
    llama = LlamaRMSNorm.forward.__code__
    for module in model.modules():
        code = getattr(type(module).forward, "__code__", None)
        if code is not None and (code.co_code, code.co_names) == (llama.co_code, llama.co_names):
            module.__class__ = type(type(module).__name__, (FusedNorm, type(module)), {})


@contextmanager
def cast_weights(modules: list[nn.Module], dtype: torch.dtype) -> Iterator[dict[int, tuple[Tensor, Tensor]]]:
    """Within the `with` block the modules' own weights are copies in `dtype`, whose gradients reach the float32 ones.

    Yields:
        Each weight and its copy, by the memory address of the copy.
    """
    places: list[tuple[nn.Module, str, nn.Parameter]] = []
    copies: dict[int, Tensor] = {}
    casts: dict[int, tuple[Tensor, Tensor]] = {}
    for module in modules:
        for name, weight in module._parameters.items():
            if weight is None or weight.dtype != torch.float32:
                continue
            if id(weight) not in copies:
                copies[id(weight)] = copy = weight.to(dtype)
                casts[copy.untyped_storage().data_ptr()] = weight, copy
            places.append((module, name, weight))
    try:
        for module, name, weight in places:
            module._parameters[name] = copies[id(weight)]  # type: ignore[assignment]
        yield casts
    finally:
        for module, name, weight in places:
            module._buffers.pop(name, None)  # where peft leaves tensors that are not Parameters
            module._parameters[name] = weight
        casts.clear()  # hooks of the graph keep the dictionary alive


@contextmanager
def cast_again(casts: dict[int, tuple[Tensor, Tensor]]) -> Iterator[None]:
    """Within the `with` block the graph keeps no copies of weights: the backward pass casts them again.

    Args:
        casts: from `cast_weights`; while it is held the copies stay in memory, so no other tensor gets their address.
    """

    def pack(tensor: Tensor) -> Any:
        found = casts.get(tensor.untyped_storage().data_ptr())
        if found is None or tensor.device.type == "meta":
            return tensor
        weight, copy = found
        return weight.detach(), copy.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()

    def unpack(saved: Any) -> Tensor:
        if isinstance(saved, Tensor):
            return saved
        weight, dtype, shape, stride, offset = saved
        found: Tensor = weight.to(dtype).as_strided(shape, stride, offset)
        return found

    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        yield
