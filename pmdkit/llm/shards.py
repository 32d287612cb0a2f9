"""Weights of which every process holds a share: cut, put together, filled from one process. FSDP2 of torch."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor


def shard(root: nn.Module, device: str, size: int) -> nn.Module:
    """Cut every weight below `root` over all processes: a block of the model at a time, what is left with the root.

    Embeddings and head stay with the root, so that a tied weight is one and the root's forward pass may read the head.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FSDPModule, fully_shard

    mesh = init_device_mesh(device, (size,))
    blocks = {name for module in root.modules() for name in getattr(module, "_no_split_modules", None) or ()}
    for module in list(root.modules()):
        if type(module).__name__ in blocks:
            fully_shard(module, mesh=mesh)
    fully_shard(root, mesh=mesh)
    for module in root.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)  # sums, not means: weights of rows count all prompts already
            module.set_force_sum_reduction_for_comms(True)
    return root


def whole(tensor: Tensor) -> Tensor:
    """The tensor from its shares, in every process; all must ask."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own(tensor: Tensor) -> Tensor:
    """This process's share."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def spread(source: Tensor, target: Tensor, main: bool, device: torch.device) -> None:
    """The main process's source into target everywhere; shares where target has shares."""
    from accelerate.utils import broadcast

    with torch.no_grad():
        sent = source.detach().to(device, target.dtype) if main else torch.empty(target.shape, dtype=target.dtype)
        sent = sent.to(device).contiguous()
        if isinstance(target, DTensor):
            target.copy_(distribute_tensor(sent, target.device_mesh, target.placements))
        else:
            target.copy_(broadcast(sent.clone() if main else sent))


def unseen(weights: Mapping[str, Tensor], name: str) -> Tensor:
    """A tensor of the shape of a weight; looking at the weight itself may be work for all processes."""
    own = getattr(weights, "unseen", None)
    found: Tensor = weights[name] if own is None else own(name)
    return found


class Gathered(Mapping[str, Tensor]):
    """Named tensors that are put together when they are looked at, one at a time: nobody holds all of them.

    Every process must look at the same ones in the same order.
    """

    def __init__(self, shares: Mapping[str, Tensor]) -> None:
        self.shares = shares

    def __getitem__(self, name: str) -> Tensor:
        return whole(self.shares[name])

    def __contains__(self, name: object) -> bool:
        return name in self.shares  # Mapping's own would look at the weight

    def unseen(self, name: str) -> Tensor:
        """Of the right shape, without being put together."""
        return unseen(self.shares, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.shares)

    def __len__(self) -> int:
        return len(self.shares)
