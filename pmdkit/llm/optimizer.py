"""The optimizer of a run, and its state where weights are shared: taken to one process, put back in all."""

from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from pmdkit.llm.shards import whole
from pmdkit.tables import ScheduleTable, UpdateTable
from pmdkit.team import Team


def make_optimizer(model: PreTrainedModel, schedule: ScheduleTable, update: UpdateTable) -> torch.optim.Optimizer:
    """The optimizer of [schedule] and [update], over every weight alike."""
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    if schedule.optimizer == "sgd":
        return torch.optim.SGD(trained, lr=schedule.lr)
    kind = torch.optim.AdamW if schedule.optimizer == "adamw" else torch.optim.Adam
    decay = update.weight_decay if schedule.optimizer == "adamw" else 0.0
    return kind(trained, lr=schedule.lr, betas=update.betas, weight_decay=decay, fused=True)


def placed(state: dict[str, Any], optimizer: torch.optim.Optimizer, team: Team) -> dict[str, Any]:
    """The optimizer's state with tensors where this process needs them, cut as the weights are that they belong to.

    A team's own processes have shapes only, the main one the numbers.
    """
    if team.size == 1:
        return state
    trained = [weight for group in optimizer.param_groups for weight in group["params"]]
    found: dict[int, dict[str, Any]] = {}
    for index, slots in sorted(state["state"].items()):
        found[index] = {}
        for name, value in sorted(slots.items()):
            if isinstance(value, Tensor):
                like = trained[index].detach()
                target = torch.zeros_like(like) if value.shape == like.shape else torch.zeros(value.shape)
                team.copy(value, target)
                value = target
            found[index][name] = value
    return {**state, "state": found}


def on_host(tensor: DTensor, main: bool) -> Tensor:
    """A shared tensor put together, in the CPU's memory; nothing of it outside of the main process."""
    found = whole(tensor)
    return found.cpu() if main else found.new_empty(0)
