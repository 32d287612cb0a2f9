"""Mixed precision: float32 weights, gradients and optimizer; forward and backward passes in bfloat16.

With two or more processes, FSDP2 gathers weights in bfloat16 and adds gradients in float32: over processes and over the
passes of an update. Each pass gives it bfloat16 gradients, that of the head included, which is summed over the tokens
of the pass in float32 and rounded once. A process that holds whole weights casts them here, once for all passes of an
update, and computes the same products in the same precision; its head's gradient is never rounded. Neither uses
autocast, which gives attention float32 queries.
"""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

Copies = dict[tuple[int, bool], Tensor]
"Copies of weights in half precision, by the weight's id and whether gradients were enabled."


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

    kept: Copies | None = None

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The forward pass of the block, with its weights cast to bfloat16 or float16 if an input has that dtype."""
        assert isinstance(self, nn.Module)
        dtypes = {x.dtype for x in (*args, *kwargs.values()) if isinstance(x, Tensor)}
        dtype = next((half for half in (torch.bfloat16, torch.float16) if half in dtypes), None)
        with nullcontext() if dtype is None else cast_weights(list(self.modules()), dtype, self.kept):
            return super().forward(*args, **kwargs)  # type: ignore[misc]  # of the block's class, which comes next


@cache
def casting_class(kind: type[nn.Module]) -> type[nn.Module]:
    """A subclass of a block's class that casts its weights on each call, as FSDP2 subclasses the class of a module."""
    if issubclass(kind, CastingBlock):
        return kind
    # its own `forward`, so that transformers wraps this one too when it recomputes activations
    members = {"forward": CastingBlock.forward, "__module__": kind.__module__}
    return type(kind.__name__, (CastingBlock, kind), members)


@contextmanager
def cast_once(root: nn.Module) -> Iterator[None]:
    """Within the `with` block each weight is cast once, at its first use: for passes between which none changes."""
    places, kept = [module for module in root.modules() if hasattr(module, "kept")], Copies()
    try:
        for module in places:
            module.kept = kept  # type: ignore[assignment]  # of a CastingBlock or a ForwardRoot
        yield
    finally:
        for module in places:
            module.kept = None  # type: ignore[assignment]


@contextmanager
def cast_weights(modules: list[nn.Module], dtype: torch.dtype, kept: Copies | None = None) -> Iterator[None]:
    """Within the `with` block the modules' own weights are copies in `dtype`, whose gradients reach the float32 ones.

    Args:
        kept: takes the copies, and has those that were made before.
    """
    places: list[tuple[nn.Module, str, nn.Parameter]] = []
    copies, graph = Copies() if kept is None else kept, torch.is_grad_enabled()  # a copy made without it has none
    for module in modules:
        for name, weight in module._parameters.items():
            if weight is not None and weight.dtype == torch.float32:
                if (id(weight), graph) not in copies:
                    copies[id(weight), graph] = weight.to(dtype)
                places.append((module, name, weight))
    try:
        for module, name, weight in places:
            module._parameters[name] = copies[id(weight), graph]  # type: ignore[assignment]
        yield
    finally:
        for module, name, weight in places:
            module._buffers.pop(name, None)  # where peft leaves tensors that are not Parameters
            module._parameters[name] = weight
