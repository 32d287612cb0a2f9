"""Model weights by their Hugging Face names, whole or sharded by FSDP2.

Under FSDP2 every process holds a shard of each weight: `GatheredWeights` gathers them, one weight at a time.
"""

from collections.abc import Collection, Iterator, Mapping

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from pmdkit.observe.checkpoint import check_shapes
from pmdkit.process_group import SINGLE, ProcessGroup


def named_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """Detached tensors by name; a tensor that two names share, such as a tied head, appears once."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            found[name] = tensor.detach()
            seen.add(id(tensor))
    return found


def load_weights(model: PreTrainedModel, found: Mapping[str, Tensor], process_group: ProcessGroup = SINGLE) -> None:
    """Copy weights into a model of the same names and shapes, in place; with several processes, the main one's."""
    copy_weights(named_weights(model), found, process_group)


def copy_weights(
    wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], process_group: ProcessGroup = SINGLE
) -> None:
    """Copy tensors into others of the same names and shapes, in place; with several processes, the main one's."""
    check_shapes(found, wanted)
    with torch.no_grad():
        for name, tensor in wanted.items():
            process_group.broadcast(found[name], tensor)


def all_finite(model: PreTrainedModel) -> bool:
    """Whether every weight in this process is finite. One pass: a maximum norm is finite if all of its terms are."""
    weights = [weight.detach() for weight in model.parameters()]
    here = [weight.to_local() if isinstance(weight, DTensor) else weight for weight in weights]  # this process's shards
    norms = torch._foreach_norm([weight for weight in here if weight.numel()], torch.inf)
    return not norms or bool(torch.isfinite(torch.stack([norm.float() for norm in norms])).all())


class LazyWeights(Mapping[str, Tensor]):
    """Named tensors that are computed on access.

    Every process must access the same ones in the same order: an access may be a collective operation.
    """

    def __init__(self, source: Mapping[str, Tensor]) -> None:
        self.source = source

    def __contains__(self, name: object) -> bool:
        return name in self.source  # Mapping's own would access the weight

    def __iter__(self) -> Iterator[str]:
        return iter(self.source)

    def __len__(self) -> int:
        return len(self.source)


class GatheredWeights(LazyWeights):
    """The weights of `source`, gathered from their shards on access, so that no process holds all of them.

    Args:
        dtype: they are cast to it before they are sent; None keeps theirs.
        buffers: names that keep their dtype in any case, see `cast_model`.
    """

    def __init__(
        self, source: Mapping[str, Tensor], dtype: torch.dtype | None = None, buffers: Collection[str] = ()
    ) -> None:
        super().__init__(source)
        self.dtype, self.buffers = dtype, buffers

    def __getitem__(self, name: str) -> Tensor:
        tensor = self.source[name]
        return full_tensor(tensor if self.dtype is None or name in self.buffers else tensor.to(self.dtype))


def full_tensor(tensor: Tensor) -> Tensor:
    """The tensor gathered from its shards, in every process; all must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
