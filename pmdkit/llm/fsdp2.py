"""FSDP2: wrap a model so that every process holds a shard of its weights, gradients and optimizer state.

This is torch's `fully_shard`. accelerate's wrapper accepts only accelerators, so no test could run it on CPUs, and its
group of norm and head waits for a call of the head, whose weight pmdkit reads without a call.
"""

import torch
from torch import nn
from torch.distributed import device_mesh, fsdp

from pmdkit.llm.shard_loading import allocate


def shard(root: nn.Module, processes: int, replicas: int, device: torch.device) -> nn.Module:
    """Shard every weight below `root` in place: one block of the model at a time, the rest with the root.

    Embeddings and head stay with the root, so that a tied weight stays one tensor and the root's forward pass can read
    it. With `replicas` (HSDP) each run of processes / replicas processes, such as those of a machine, shards its own
    copy. Gradients are summed over processes, not averaged.
    """
    shape = (processes,) if replicas == 1 else (replicas, processes // replicas)
    mesh = device_mesh.init_device_mesh(device.type, shape, mesh_dim_names=("replicate", "shard")[-len(shape) :])
    policy, dtype = fsdp.MixedPrecisionPolicy(), getattr(root, "dtype", torch.float32)
    if dtype != torch.float32:  # compute in it, and add gradients over processes in float32
        policy = fsdp.MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    blocks = {name for module in root.modules() for name in getattr(module, "_no_split_modules", None) or ()}
    for module in list(root.modules()):
        if type(module).__name__ in blocks:
            fsdp.fully_shard(module, mesh=mesh, mp_policy=policy)
    fsdp.fully_shard(root, mesh=mesh, mp_policy=policy)
    for module in root.modules():
        if isinstance(module, fsdp.FSDPModule):
            # FSDP2 averages by default, which would divide the step by the number of processes; sum instead, because
            # the rows' weights already count all prompts
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)
    allocate(root, device)
    return root
