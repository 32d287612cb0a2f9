"""The optimizer of a run, its learning rate at every step, and its state on the process that needs it."""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from pmdkit import optimizer as optimizers
from pmdkit.process_group import ProcessGroup
from pmdkit.specs.llm import UpdateTable
from pmdkit.specs.spec import ScheduleTable


def make_optimizer(model: PreTrainedModel, schedule: ScheduleTable, update: UpdateTable) -> torch.optim.Optimizer:
    """The optimizer of [schedule] and [update] for the trained weights."""
    return optimizers.make_optimizer(
        model, schedule.optimizer, schedule.lr, update.betas, update.weight_decay, fused=True
    )


def place_optimizer_state(
    state: dict[str, Any], optimizer: torch.optim.Optimizer, process_group: ProcessGroup
) -> dict[str, Any]:
    """The main process's state of the optimizer in every process, sharded like the weights that it belongs to."""
    if process_group.size == 1:
        return state
    trained = [weight.detach() for group in optimizer.param_groups for weight in group["params"]]
    slots: dict[int, dict[str, Any]] = {}
    for index, held in sorted(state["state"].items()):
        slots[index] = dict(held)
        for name, value in sorted(held.items()):  # in one order: a file gives names in any, and processes meet here
            if isinstance(value, torch.Tensor):
                whole = torch.zeros(value.shape)  # such as the number of the step
                slots[index][name] = torch.zeros_like(trained[index]) if value.ndim else whole
                process_group.broadcast(value, slots[index][name])
    return {**state, "state": slots}


def make_lr_scheduler(lrs: Sequence[float], schedule: ScheduleTable, update: UpdateTable) -> "LRScheduler | None":
    """The scheduler of [update] for the learning rates of some parameter groups; None if they are constant."""
    plain = update.lr_scheduler_type == "constant" and update.warmup_steps == 0
    return None if plain else LRScheduler(lrs, schedule, update)


class LRScheduler:
    """The learning rates of each optimizer step, with the formulas of transformers; `lrs` are their largest values.

    They depend only on the number of the optimizer step, counted as if every step of the run had all of its
    ministeps and passes. So there is no state to save: a resumed run has the rates of an uninterrupted one.
    """

    def __init__(self, lrs: Sequence[float], schedule: ScheduleTable, update: UpdateTable) -> None:
        from transformers import get_scheduler  # half a second, since it imports peft

        self.lrs = lrs
        self.per_step = schedule.ministeps * schedule.passes
        stand_in = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)  # a scheduler gives the formula
        name = "constant_with_warmup" if update.lr_scheduler_type == "constant" else update.lr_scheduler_type
        made: Any = get_scheduler(
            name,
            stand_in,
            num_warmup_steps=update.warmup_steps * self.per_step,
            num_training_steps=schedule.steps * self.per_step,
        )
        self.factor = made.lr_lambdas[0]
        self.version, self.turn = -1, 0

    def step(self, version: int) -> list[float]:
        """The rate of each group for the next optimizer step after `version` complete steps."""
        self.turn = self.turn + 1 if version == self.version else 0
        self.version = version
        factor = self.factor(version * self.per_step + self.turn)
        return [lr * factor for lr in self.lrs]
