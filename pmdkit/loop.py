"""The loop of policy mirror descent: roll out, credit, update. One function, used by every backend."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter

import torch
from torch import Tensor

from pmdkit.learner import Learner, Rollouts, Task
from pmdkit.objectives import Groups, Objective
from pmdkit.objectives.credit import credit, cut, parts
from pmdkit.objectives.vocabulary import Batch
from pmdkit.randomness import derive

Stream = Callable[["Learner", "Task", "Schedule", int], Iterable[tuple[int, Rollouts]]]
Observer = Callable[[int, Learner, Rollouts, Groups, Batch, list[dict[str, float]]], None]


@dataclass(frozen=True)
class Schedule:
    """How long and how stale.

    Attributes:
        steps: rollout batches in the whole run.
        group: responses per prompt, or None for the full support.
        ministeps: updates per rollout batch; the last one is `ministeps - 1` updates stale.
        seed: of the run.
        drop_equal_groups: give no weight to groups whose rewards are all equal. Under PMD they pull back to pi_old, so
            this changes the objective.
    """

    steps: int
    group: int | None = None
    ministeps: int = 1
    seed: int = 0
    drop_equal_groups: bool = False


def inline(learner: Learner, task: Task, schedule: Schedule, start: int) -> Iterator[tuple[int, Rollouts]]:
    """Roll out when the loop asks: step s answers with the policy after step s - 1."""
    for step in range(start + 1, schedule.steps + 1):
        began = perf_counter()
        rollouts = learner.rollout(task.prompts(step), schedule.group, seed=derive(schedule.seed, "rollout", step))
        yield step, replace(rollouts, seconds=perf_counter() - began)


def run(
    objective: Objective,
    learner: Learner,
    task: Task,
    schedule: Schedule,
    observers: Sequence[Observer] = (),
    stream: Stream = inline,
    start: int = 0,
) -> None:
    """Train from after step `start` to the last step of the schedule.

    Observers see each finished step in their order (gauges, metrics, evaluation, checkpoint); an exception in one ends
    the run. Whatever is not checkpointed can be computed again from the seed, bit by bit.
    """
    for step, rollouts in stream(learner, task, schedule, start):  # pi_old is frozen here
        groups = graded(task.reward(rollouts), rollouts)
        batch = credit(objective, groups, rollouts.logp_old, rollouts.mask, rollouts.logp_ref, rollouts.width)
        batch = replace(batch, correction=rollouts.correction)
        if schedule.drop_equal_groups:
            batch = without_equal_groups(batch, groups)
        updates = [update(learner, objective, *part) for part in ministeps(rollouts, batch, schedule.ministeps)]
        learner.version = step
        for observe in observers:
            observe(step, learner, rollouts, groups, batch, updates)


def graded(reward: Tensor, rollouts: Rollouts) -> Groups:
    """The step's groups. NaN marks a response without a verdict: it has mass 0, and the rest of its group shares."""
    unscored = torch.isnan(reward)
    mass = rollouts.mass
    if bool(unscored.any()):
        mass = torch.where(unscored, 0.0, mass)
        whole = mass.sum(1, keepdim=True)
        mass = mass / torch.where(whole > 0, whole, 1.0)
        reward = torch.where(unscored, 0.0, reward)
    return Groups(reward, mass, rollouts.sampled)


def without_equal_groups(batch: Batch, groups: Groups) -> Batch:
    """The batch with weight 0 on every group whose rewards are all equal; the others keep theirs."""
    top = torch.where(groups.present, groups.reward, -torch.inf).max(1).values
    low = torch.where(groups.present, groups.reward, torch.inf).min(1).values
    kept = (top > low).repeat_interleave(groups.reward.shape[1])
    return replace(batch, weight=torch.where(kept, batch.weight, 0.0))


def ministeps(rollouts: Rollouts, batch: Batch, count: int) -> Iterator[tuple[Rollouts, Batch]]:
    """The step cut by prompts into `count` parts, each averaging over its own prompts."""
    prompts, size = rollouts.mass.shape
    for part in parts(prompts, count):
        yield rollouts.part(part), cut(batch, part, prompts, size)


def update(learner: Learner, objective: Objective, rollouts: Rollouts, batch: Batch) -> dict[str, float]:
    """One ministep and the seconds it took."""
    began = perf_counter()
    report = learner.update(objective, rollouts, batch)
    return {**report, "seconds": perf_counter() - began}
