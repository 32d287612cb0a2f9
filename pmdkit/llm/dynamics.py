"""What stands between a gradient and a step: the learning rate, and whether the gradient is anything but rounding."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from pmdkit.config import ScheduleTable, UpdateTable
from pmdkit.objectives import Batch, Objective, total, traits

EPS = 8 * torch.finfo(torch.float32).eps
"Of log-probabilities, float32 at best. In bfloat16 engine and trainer differ by more, which is a mismatch and counts."
EPS_REWARD = 8 * torch.finfo(torch.float64).eps


class LRScheduler:
    """Sets the learning rate of each optimizer step, by the formulas of transformers.

    It is a function of the number of the optimizer step alone, counted as if every step of the run had all of its
    ministeps and passes, so that there is no state to save: a resumed run has the rates of an undisturbed one.

    Args:
        optimizer: whose rate is set.
        schedule: lr, and how many optimizer steps the run has.
        update: lr_scheduler_type and warm-up.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, schedule: ScheduleTable, update: UpdateTable) -> None:
        from transformers import get_scheduler

        self.optimizer = optimizer
        self.lr = schedule.lr
        self.per_step = schedule.ministeps * schedule.passes
        stand_in = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)  # the formula comes with a scheduler
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
        """Set the rate of the next optimizer step after `version` complete steps; returns it."""
        self.turn = self.turn + 1 if version == self.version else 0
        self.version = version
        lr: float = self.lr * self.factor(version * self.per_step + self.turn)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        return lr


class RoundingCheck:
    """Whether the coefficients of an update are anything but rounding: fed with the log-probabilities of its passes.

    A coefficient is d total / d log pi, all that the network is asked for. Where rewards are equal and the policy has
    not moved it is 0 but for rounding, and Adam would make a step of full size of that. It counts as rounding if it is
    below 8 eps of the magnitudes that it was summed from: log-probabilities, a nat per token at least since they are
    differences of logits, and rewards. Autograd says how much of each is in it.

    Args:
        objective: of the update.

    Attributes:
        signal: a coefficient is more than rounding.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.signal = False

    def __call__(self, batch: Batch, rows: Sequence[int], logp: Tensor) -> None:
        """Look at some rows of a ministep's batch; `logp` is [n, T], or [n, 1] sums over tokens."""
        if self.signal:
            return
        some = batch[torch.tensor(rows)]
        if logp.shape != some.mask.shape:
            some = some.folded()
        inputs = {
            "logp": logp.detach().double().cpu(),
            "logp_old": some.logp_old.double(),
            "advantage": some.advantage.double(),
            **({} if some.logp_ref is None else {"logp_ref": some.logp_ref.double()}),
        }
        inputs = {name: value.clone().requires_grad_() for name, value in inputs.items()}
        found = coefficients(self.objective, replace(some, **inputs), inputs)
        bound = torch.zeros_like(found)
        if found.requires_grad:
            # own slopes: with signs in turn, what a centring over the group subtracts is 0
            signs = 1.0 - 2.0 * (torch.arange(len(found)) % 2)[:, None]
            slopes = torch.autograd.grad((found * signs).sum(), list(inputs.values()), allow_unused=True)
            tokens = some.length.double()[:, None] / some.mask.sum(1, keepdim=True).clamp_min(1)
            for (name, value), slope in zip(inputs.items(), slopes, strict=True):
                if slope is not None and name == "advantage":
                    scale = value.abs() + (0 if some.magnitude is None else some.magnitude)
                    bound = bound + (EPS_REWARD * slope.abs() * scale)[:, None]
                elif slope is not None:
                    bound = bound + EPS * slope.abs() * (value.abs() + tokens)
        if traits(self.objective).whole_groups:  # a coefficient holds the rounding of its peers too
            bound = bound.amax().expand_as(bound)
        self.signal = bool((found.detach().abs() > bound)[some.mask].any())


def coefficients(objective: Objective, batch: Batch, inputs: dict[str, Tensor]) -> Tensor:
    """The gradient of the loss by `logp`, itself with a gradient where it depends on the inputs."""
    with torch.enable_grad():
        (found,) = torch.autograd.grad(total(objective, batch), inputs["logp"], create_graph=True)
    return found
