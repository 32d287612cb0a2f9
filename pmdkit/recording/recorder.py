"""Puts a finished step together and writes it to rollouts/step-N.safetensors; called by the session after the metrics.

Nothing depends on the clock, the path or the number of resumes: a step that is computed again has the same bytes.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pmdkit.learner import Rollouts
from pmdkit.loop import Schedule
from pmdkit.objectives import Groups
from pmdkit.observe import files
from pmdkit.observe.folder import RunFolder
from pmdkit.recording.format import Recording, encode
from pmdkit.recording.witness import Witness
from pmdkit.team import ALONE, Team


@dataclass(frozen=True)
class Remarks:
    """What a tier adds to a recorded step.

    Attributes:
        facts: JSON values: `passed`, the reward above which a response is right, or None; `vocabulary`, ...
        tensors: `logp_after`, `prompt_tokens`, ...
    """

    facts: dict[str, Any] = field(default_factory=dict)
    tensors: dict[str, Tensor] = field(default_factory=dict)


class Recorder:
    """Writes every k-th step of a run.

    Args:
        folder: of the run.
        every: k, at least 1.
        about: what is the same for all steps: tier, env, objective.
        schedule: of the run.
        witness: saw the updates.
        remarks: what the tier adds.
        team: each process saw its own rows; the main one writes.
    """

    def __init__(
        self,
        folder: RunFolder,
        every: int,
        about: dict[str, Any],
        schedule: Schedule,
        witness: Witness,
        remarks: Callable[[Rollouts], Remarks] | None = None,
        team: Team = ALONE,
    ) -> None:
        self.folder = folder
        self.every = every
        self.about = about
        self.schedule = schedule
        self.witness = witness
        self.remarks = remarks
        self.team = team

    def record(
        self, step: int, rollouts: Rollouts, groups: Groups, updates: list[dict[str, float]], after: Tensor | None
    ) -> None:
        """Write the step if it is its turn.

        Args:
            step, rollouts, groups, updates: as observers see them.
            after: [n, T] log-probabilities of the first n rows after the step, where they are known.
        """
        if step % self.every == 0:
            seen = put_together(self.witness.seen(rollouts), rollouts, self.team)
            if self.team.main:
                recording = self.recording(step, rollouts, groups, updates, seen, after)
                self.folder.rollouts.mkdir(mode=0o700, exist_ok=True)
                put(self.folder.rollouts / f"step-{step}.safetensors", encode(recording))
        self.witness.forget()

    def recording(
        self,
        step: int,
        rollouts: Rollouts,
        groups: Groups,
        updates: list[dict[str, float]],
        seen: Tensor | None,
        after: Tensor | None,
    ) -> Recording:
        """The step as it is kept."""
        remarks = self.remarks(rollouts) if self.remarks is not None else Remarks()
        about = {
            **self.about,
            **remarks.facts,
            "step": step,
            "version": rollouts.version,
            "seed": rollouts.seed,
            "run_seed": self.schedule.seed,
            "sampled": rollouts.sampled,
            "width": rollouts.width,
            "ministeps": self.schedule.ministeps,
            "drop_equal_groups": self.schedule.drop_equal_groups,
            "updates": [{key: value for key, value in update.items() if key != "seconds"} for update in updates],
        }
        known = {
            "prompts": rollouts.prompts,
            "responses": rollouts.responses,
            "reward": groups.reward,
            "mass": groups.mass,
            "logp_old": rollouts.logp_old,
            "logp_ref": rollouts.logp_ref,
            "correction": rollouts.correction,
            "logp_seen": seen,
            "logp_after": after,
            **remarks.tensors,
        }
        return Recording(about, rollouts.mask.cpu(), {k: x.cpu() for k, x in known.items() if x is not None})


def put(path: Path, data: bytes) -> None:
    """Write a file whole or not at all, whenever the process is killed.

    It is not flushed to the disk: that took ten times as long as all the rest. A loss of power may cost the newest
    recordings; they fail their checksums then.
    """
    aside = path.with_name(f".{path.name}.part")
    aside.unlink(missing_ok=True)
    with open(aside, "xb", opener=files.private) as file:
        file.write(data)
    os.replace(aside, path)


def put_together(seen: Tensor | None, rollouts: Rollouts, team: Team) -> Tensor | None:
    """What the processes saw, each its own rows; None where nobody saw any."""
    if team.size == 1:
        return seen
    axes = max(int(part) for part in team.gather(torch.tensor([0 if seen is None else seen.ndim])))
    if axes == 0:
        return None
    if seen is None:
        shape = rollouts.mask.shape if axes == 2 else rollouts.mask.shape[:1]
        seen = torch.full(shape, torch.nan)
    whole, *parts = team.gather(seen.double())
    for part in parts:
        whole = torch.where(torch.isnan(whole), part, whole)
    return whole
