"""The learning rate of every optimizer step: schedules and warm-up."""

from typing import Any

import torch

from pmdkit.specs.llm import UpdateTable
from pmdkit.specs.spec import ScheduleTable


class LRScheduler:
    """Sets the learning rate of each optimizer step, with the formulas of transformers.

    The rate depends only on the number of the optimizer step, counted as if every step of the run had all of its
    ministeps and passes. So there is no state to save: a resumed run has the rates of an uninterrupted one.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, schedule: ScheduleTable, update: UpdateTable) -> None:
        from transformers import get_scheduler

        self.optimizer = optimizer
        self.lr = schedule.lr
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

    def step(self, version: int) -> float:
        """Set the rate of the next optimizer step after `version` complete steps, and return it."""
        self.turn = self.turn + 1 if version == self.version else 0
        self.version = version
        lr: float = self.lr * self.factor(version * self.per_step + self.turn)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        return lr
