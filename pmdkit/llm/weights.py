"""Model weights by their Hugging Face names, whole or sharded by FSDP2.

Under FSDP2 every process holds a shard of each weight: `GatheredWeights` gathers them, one weight at a time.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from pmdkit.distributed import SINGLE, ProcessGroup
from pmdkit.llm.sharded_checkpoint import read_shard
from pmdkit.observe.checkpoint import check_shapes
from pmdkit.observe.shards import StoredTensor


def named_weights(model: PreTrainedModel) -> dict[str, Tensor]:
    """Detached tensors by name; a tensor that two names share, such as a tied head, appears once."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            found[name] = tensor.detach()
            seen.add(id(tensor))
    return found


def load_weights(
    model: PreTrainedModel, found: Mapping[str, Tensor | StoredTensor], process_group: ProcessGroup = SINGLE
) -> None:
    """Copy weights into a model of the same names and shapes, in place; with several processes, the main one's."""
    copy_weights(named_weights(model), found, process_group)


def copy_weights(
    wanted: Mapping[str, Tensor], found: Mapping[str, Tensor | StoredTensor], process_group: ProcessGroup = SINGLE
) -> None:
    """Copy tensors into others of the same names and shapes, in place; with several processes, the main one's.

    Each process reads tensors that are on disk by itself, and only its own shards of them.
    """
    check_shapes(found, wanted)
    with torch.no_grad():
        for name, tensor in wanted.items():
            source = found[name]
            if isinstance(source, StoredTensor):
                read_shard(source, tensor)
            else:
                process_group.broadcast(source, tensor)


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
    """Weights that are gathered from their shards on access, in the dtype that the engine computes in.

    No process holds all of them. What is not sharded keeps its dtype: it is not sent.
    """

    def __init__(self, source: Mapping[str, Tensor], dtype: torch.dtype = torch.float32) -> None:
        super().__init__(source)
        self.dtype = dtype

    def __getitem__(self, name: str) -> Tensor:
        tensor = self.source[name]
        return full_tensor(tensor.to(self.dtype)) if isinstance(tensor, DTensor) else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """The tensor gathered from its shards, in every process; all must call this."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
