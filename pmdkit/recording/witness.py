"""Who sees the log-probabilities of a step without another forward pass: around the objective, and around the meter.

A learner scores every row to update on it, and again to measure the step. Both numbers pass by here.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pmdkit.learner import Learner, Rollouts
from pmdkit.objectives import Objective
from pmdkit.objectives.vocabulary import Batch


@dataclass(frozen=True)
class Look:
    """Log-probabilities that an update asked about: logp [n, T], or [n, 1] sums; group [n] whose prompts they answer.

    `rows` [n] says which rows of the step they are, where whoever asked knew.
    """

    logp: Tensor
    group: Tensor
    rows: tuple[int, ...] | None = None


class Witness:
    """An objective that passes every question on and remembers the log-probabilities it was asked about.

    Args:
        objective: answers.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.looks: list[Look] = []
        self.known: set[int] = set()
        self.rows: list[int] | None = None

    def __getattr__(self, name: str) -> Any:
        """Options, traits and the advantage are the objective's own."""
        return getattr(self.objective, name)

    def loss(self, batch: Batch) -> Tensor:
        """The objective's loss. What is kept of a row is its first look: the policy before its own update."""
        probe = batch.logp.is_leaf and batch.logp.requires_grad  # `coefficient` asks about numbers of its own
        if not probe and self.rows is not None:
            count = len(batch.logp)
            mine, self.rows = self.rows[:count], self.rows[count:]
            self.looks.append(Look(batch.logp.detach(), batch.group, tuple(mine)))
        elif not probe and int(batch.group[0]) not in self.known:
            self.known.add(int(batch.group[0]))
            self.looks.append(Look(batch.logp.detach(), batch.group))
        return self.objective.loss(batch)

    @contextmanager
    def looking_at(self, rows: Sequence[int], batch: Batch) -> Iterator[None]:
        """The next looks are at these rows of a ministep's batch, in their order."""
        first = int(batch.group[0])
        size = int((batch.group == first).sum())
        self.rows = [first * size + row for row in rows]
        try:
            yield
        finally:
            self.rows = None

    def forget(self) -> None:
        """The step is over."""
        self.looks, self.known = [], set()

    def seen(self, rollouts: Rollouts) -> Tensor | None:
        """[N, T], or [N] sums: each row's log-probabilities before its own update, NaN where no update looked at it.

        None where there was no look, or looks cannot be told apart: a learner that cuts a ministep without
        `looking_at`.
        """
        if not self.looks:
            return None
        count, width = rollouts.mask.shape
        size = rollouts.mass.shape[1]
        sums = width > 1 and all(look.logp.shape[1] == 1 for look in self.looks)
        wide = 1 if sums else width
        seen = np.full((count, wide), np.nan, self.looks[0].logp.cpu().numpy().dtype)
        groups = np.arange(len(rollouts.mass)).repeat(size)
        for look in reversed(self.looks):  # a second pass comes after the first, which is to stay
            logp, group = look.logp.cpu().numpy(), look.group.cpu().numpy()
            start = int(group[0]) * size
            rows = slice(start, start + len(group)) if look.rows is None else np.array(look.rows)
            if logp.shape[1] != wide or not np.array_equal(group, groups[rows]):
                return None
            seen[rows] = logp
        return torch.from_numpy(seen[:, 0] if sums else seen)


class Heard:
    """A learner as the meter sees it: what it scores after the step is kept in `after`."""

    def __init__(self, learner: Learner) -> None:
        self.learner = learner
        self.after: Tensor | None = None

    def __getattr__(self, name: str) -> Any:
        """Everything else is the learner's own."""
        return getattr(self.learner, name)

    def logp(self, rollouts: Rollouts) -> Tensor:
        """[n, T] of the first n rows of the step."""
        logp = self.learner.logp(rollouts)
        self.after = logp.detach()
        return logp
