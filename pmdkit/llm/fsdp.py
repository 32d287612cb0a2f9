"""FSDP2 wrapping: every weight sharded over all processes, one block of the model at a time."""

import torch
from torch import nn

from pmdkit.llm.shard_loading import allocate


def apply_fsdp(root: nn.Module, device: str, size: int, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Shard every weight below `root` over all processes: one block of the model at a time, the rest with the root.

    Embeddings and head stay with the root, so that a tied weight stays one and the root's forward pass can read it.
    """
    from torch.distributed import device_mesh, fsdp

    mesh = device_mesh.init_device_mesh(device, (size,))
    policy = fsdp.MixedPrecisionPolicy()
    if dtype != torch.float32:  # compute in it, and add gradients over processes in float32
        policy = fsdp.MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    blocks = {name for module in root.modules() for name in getattr(module, "_no_split_modules", None) or ()}
    for module in list(root.modules()):
        if type(module).__name__ in blocks:
            fsdp.fully_shard(module, mesh=mesh, mp_policy=policy)
    fsdp.fully_shard(root, mesh=mesh, mp_policy=policy)
    for module in root.modules():
        if isinstance(module, fsdp.FSDPModule):
            # FSDP2 averages by default, which would divide the step by the number of processes
            module.set_gradient_divide_factor(1.0)  # sums, not means: the rows' weights already count all prompts
            module.set_force_sum_reduction_for_comms(True)
    allocate(root, torch.device(device, torch.cuda.current_device()) if device == "cuda" else torch.device(device))
    return root
