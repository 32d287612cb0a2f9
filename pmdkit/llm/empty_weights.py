"""Models whose weights have no memory yet: on the meta device, until they are sharded or read."""

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor


def is_empty(model: nn.Module) -> bool:
    """Whether the parameters of a model have no memory yet."""
    return any(weight.is_meta for weight in model.parameters())


def allocate(root: nn.Module, device: torch.device | str) -> None:
    """Allocate memory on a device for parameters on the meta device, for this process's rows where they are sharded.

    The memory is uninitialized until `shard_loading.fill_model`. Two names of one parameter stay one.
    """
    made: dict[int, tuple[nn.Parameter, nn.Parameter]] = {}  # keeps the old ones, or another would get their id
    for module in root.modules():
        for name, weight in list(module._parameters.items()):
            if weight is None or not weight.is_meta:
                continue
            if id(weight) not in made:
                new: Tensor
                if isinstance(weight, DTensor):
                    local = torch.empty_like(weight.to_local(), device=device)
                    cut = weight.device_mesh, weight.placements
                    new = DTensor.from_local(local, *cut, run_check=False, shape=weight.shape, stride=weight.stride())
                else:
                    new = torch.empty_like(weight, device=device)
                made[id(weight)] = weight, nn.Parameter(new, requires_grad=weight.requires_grad)
            module._parameters[name] = made[id(weight)][1]
    if made:
        root._apply(lambda tensor: tensor)  # FSDP2 looks at the parameters again
