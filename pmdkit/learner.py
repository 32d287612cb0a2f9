"""What the loop asks of a backend (Learner) and of a problem (Task), and what passes between them (Rollouts).

A table of logits, a small transformer and a language model on a cluster all fit this; nothing here knows which.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from pmdkit.objectives import Objective
from pmdkit.objectives.vocabulary import Batch


@dataclass(frozen=True)
class Rollouts:
    """Responses to P prompts, G each, prompt-major, under the policy frozen at dispatch.

    Attributes:
        prompts: [P] what the task calls a prompt (bandit: the context).
        responses: [N, T] tokens (bandit: the arm, T = 1).
        logp_old: [N, T] their log-probabilities when drawn, nats.
        mask: [N, T] boolean, True on response tokens.
        mass: [P, G] 1/G for draws, pi_old on the full support.
        sampled: draws, or the full support.
        seed: of this step; rewards that need randomness derive theirs from it.
        version: policy version at dispatch, the number of completed steps.
        width: generation budget, tokens.
        logp_ref: [N, T] under the reference policy, where the learner keeps one.
        correction: [N] or [N, T] importance weights of an engine that computes otherwise than the trainer.
        seconds: wall time of the rollout.
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
        """Everything that the next step depends on."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""

    def save_pretrained(self, path: str | Path) -> None:
        """Write the policy to a folder that other programs can load."""


@runtime_checkable
class Task(Protocol):
    """A source of prompts and a judge of responses, both pure in (seed, step)."""

    def prompts(self, step: int) -> Tensor:
        """[P] the prompts of a step, counted from 1."""

    def reward(self, rollouts: Rollouts) -> Tensor:
        """[P, G] reward units; NaN for a response without a verdict, which then counts for nothing."""
