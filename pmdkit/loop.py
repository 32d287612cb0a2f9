"""The policy mirror descent loop, `run`: roll out, credit, update, for every backend. Read it first.

Above it are the interfaces that the loop needs: a policy (Learner), a problem (Task) and what they exchange (Rollouts).
A table of logits, a small transformer and a language model on a cluster all implement them; nothing here knows which.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from pmdkit.objectives import Batch, Groups, Objective, credit, cut, parts
from pmdkit.objectives.baselines import rewards_differ
from pmdkit.randomness import derive


@dataclass(frozen=True)
class Episode:
    """The result of a multi-turn episode, besides the row's tokens.

    Attributes:
        messages: from the first one of the prompt to the policy's last turn.
        tokens: tokens of that last turn.
        reward: from the environment, reward units; None if the task grades.
        cut_off: whether the budget of tokens or turns ended it.
        failure: what failed in the environment, one sentence; the episode then has no reward. "" otherwise.
    """

    messages: tuple[dict[str, str], ...]
    tokens: tuple[int, ...]
    reward: float | None
    cut_off: bool
    failure: str = ""


@dataclass(frozen=True)
class Rollouts:
    """Responses to P prompts, G each, prompt-major, under the policy frozen at dispatch.

    Attributes:
        prompts: [P] what the task calls a prompt (bandit: the context).
        responses: [N, T] tokens (bandit: the arm, T = 1).
        logp_old: [N, T] their log-probabilities when drawn, nats.
        mask: [N, T] boolean, True on response tokens; an environment's tokens between them are context only.
        mass: [P, G] 1/G for draws, pi_old on the full support.
        sampled: whether these are draws, or the full support.
        seed: seed of this step; rewards that need randomness derive theirs from it.
        version: policy version at dispatch, the number of completed steps.
        width: generation budget, tokens.
        logp_ref: [N, T] under the reference policy, if the learner keeps one.
        correction: [N] or [N, T] importance weights, for an engine that computes differently from the trainer.
        seconds: wall time of the rollout.
        episodes: N of them, if an environment took turns.
    """

    prompts: Tensor
    responses: Tensor
    logp_old: Tensor
    mask: Tensor
    mass: Tensor
    sampled: bool
    seed: int
    version: int
    width: int
    logp_ref: Tensor | None = None
    correction: Tensor | None = None
    seconds: float = 0.0
    episodes: Sequence[Episode] | None = None

    @property
    def extent(self) -> Tensor:
        """[N] tokens of each row up to its last response token, including the environment's tokens."""
        return (self.mask * torch.arange(1, self.mask.shape[1] + 1, device=self.mask.device)).amax(1)

    def part(self, prompts: slice) -> "Rollouts":
        """The rollouts of some prompts."""
        size = self.mass.shape[1]
        rows = slice(prompts.start * size, prompts.stop * size)
        return replace(
            self,
            prompts=self.prompts[prompts],
            mass=self.mass[prompts],
            responses=self.responses[rows],
            logp_old=self.logp_old[rows],
            mask=self.mask[rows],
            logp_ref=None if self.logp_ref is None else self.logp_ref[rows],
            correction=None if self.correction is None else self.correction[rows],
            episodes=None if self.episodes is None else self.episodes[rows],
        )


@runtime_checkable
class Learner(Protocol):
    """A policy that can answer, score and improve."""

    version: int

    def rollout(self, prompts: Tensor, group: int | None, seed: int) -> Rollouts:
        """Draw `group` responses per prompt, or enumerate the full support where `group` is None."""

    def logp(self, rollouts: Rollouts) -> Tensor:
        """[N, T] log-probabilities under the current policy, with gradient."""

    def update(self, objective: Objective, rollouts: Rollouts, batch: Batch) -> dict[str, float]:
        """One ministep. Returns at least `loss` and `grad_norm`."""

    def state_dict(self) -> dict[str, Any]:
        """The state that the next step depends on."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""


@runtime_checkable
class Task(Protocol):
    """A source of prompts and a judge of responses, both pure functions of (seed, step)."""

    def prompts(self, step: int) -> Tensor:
        """[P] the prompts of a step, counted from 1."""

    def reward(self, rollouts: Rollouts) -> Tensor:
        """[P, G] reward units; NaN for a response without a verdict, which is then ignored."""


Stream = Callable[["Learner", "Task", "Schedule", int], Iterable[tuple[int, Rollouts]]]
"Maps a learner, a task, a schedule and the last finished step to (step, rollouts) of each step to come."
Observer = Callable[[int, Learner, Rollouts, Groups, Batch, list[dict[str, float]]], None]
"Called after each step: number, learner, rollouts, groups, batch, and what each ministep reported."
LogpHook = Callable[[Batch, Sequence[int], Tensor], None]
"""Optional hook `on_logp` of a learner: called in an update with its batch, the rows of a forward pass, and their
[n, T] log-probabilities before the update, or [n, 1] sums over tokens."""


@dataclass(frozen=True)
class Schedule:
    """Length and staleness of a run.

    Attributes:
        steps: rollout batches in the whole run.
        group: responses per prompt, or None for the full support.
        ministeps: updates per rollout batch; the last one is `ministeps - 1` updates stale.
        seed: seed of the run.
        drop_equal_groups: give no weight to groups whose rewards are all equal. Under PMD they pull back to pi_old, so
            this changes the objective.
    """

    steps: int
    group: int | None = None
    ministeps: int = 1
    seed: int = 0
    drop_equal_groups: bool = False


def inline(learner: Learner, task: Task, schedule: Schedule, start: int) -> Iterator[tuple[int, Rollouts]]:
    """Roll out on demand: step s draws from the policy after step s - 1."""
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
    """Train from step `start` + 1 to the last step of the schedule.

    Observers are called in order after each step (gauges, metrics, evaluation, checkpoint); an exception in one ends
    the run. Anything not checkpointed can be recomputed from the seed, bit for bit.
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
    """Build the step's groups. The mass of a response without a verdict (NaN) goes to the rest of its group."""
    unscored = torch.isnan(reward)
    mass = rollouts.mass
    if bool(unscored.any()):
        mass = torch.where(unscored, 0.0, mass)
        whole = mass.sum(1, keepdim=True)
        mass = mass / torch.where(whole > 0, whole, 1.0)
        reward = torch.where(unscored, 0.0, reward)
    return Groups(reward, mass, rollouts.sampled)


def without_equal_groups(batch: Batch, groups: Groups) -> Batch:
    """Set the weight of every group with equal rewards to 0, and keep all other weights."""
    kept = rewards_differ(groups).repeat_interleave(groups.reward.shape[1])
    return replace(batch, weight=torch.where(kept, batch.weight, 0.0))


def ministeps(rollouts: Rollouts, batch: Batch, count: int) -> Iterator[tuple[Rollouts, Batch]]:
    """Split the step by prompts into `count` parts, each averaged over its own prompts."""
    prompts, size = rollouts.mass.shape
    for part in parts(prompts, count):
        yield rollouts.part(part), cut(batch, part, prompts, size)


def update(learner: Learner, objective: Objective, rollouts: Rollouts, batch: Batch) -> dict[str, float]:
    """Make one ministep, and time it."""
    began = perf_counter()
    report = learner.update(objective, rollouts, batch)
    return {**report, "seconds": perf_counter() - began}
