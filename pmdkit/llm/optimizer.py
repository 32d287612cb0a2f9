"""The optimizer of a run, and its state on the process that needs it."""

from typing import Any

import torch
from transformers import PreTrainedModel

from pmdkit.distributed import ProcessGroup
from pmdkit.llm.sharded_checkpoint import read_shard
from pmdkit.observe.shards import StoredTensor
from pmdkit.specs.llm import UpdateTable
from pmdkit.specs.spec import ScheduleTable


def make_optimizer(model: PreTrainedModel, schedule: ScheduleTable, update: UpdateTable) -> torch.optim.Optimizer:
    """The optimizer of [schedule] and [update], the same for all trained weights."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    if schedule.optimizer == "sgd":
        return torch.optim.SGD(trained, lr=schedule.lr)
    kind = torch.optim.AdamW if schedule.optimizer == "adamw" else torch.optim.Adam
    decay = update.weight_decay if schedule.optimizer == "adamw" else 0.0
    return kind(trained, lr=schedule.lr, betas=update.betas, weight_decay=decay, fused=True)


def place_optimizer_state(
    state: dict[str, Any], optimizer: torch.optim.Optimizer, process_group: ProcessGroup
) -> dict[str, Any]:
    """The optimizer's state with its tensors in this process, sharded like the weights that they belong to.

    With several processes, each reads its own shards from disk.
    """
    if process_group.size == 1:
        return state
    trained = [weight for group in optimizer.param_groups for weight in group["params"]]

    def placed(index: int, value: Any) -> Any:
        if not isinstance(value, StoredTensor):
            return value
        like = trained[index].detach()
        target = torch.zeros_like(like) if value.shape == like.shape else torch.zeros(value.shape)
        read_shard(value, target)
        return target

    slots = {i: {name: placed(i, value) for name, value in held.items()} for i, held in sorted(state["state"].items())}
    return {**state, "state": slots}
