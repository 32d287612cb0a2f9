"""Puts a finished step together and writes it to rollouts/step-N.safetensors: a callback of the trainer.

Nothing depends on the clock, the path or the number of resumes: a step that is computed again has the same bytes.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pmdkit.distributed import ProcessGroup
from pmdkit.loop import Rollouts
from pmdkit.objectives import Batch
from pmdkit.observe import files
from pmdkit.replay.recording import Recording, encode
from pmdkit.trainer import RunContext, StepResult, TrainerCallback


@dataclass(frozen=True)
class StepExtras:
    """What a tier adds to a recorded step.

    Attributes:
        facts: JSON values: `passed`, the reward above which a response is right, or None; `vocabulary`, ...
        tensors: `logp_after`, `prompt_tokens`, ...; None for one that this step does not have.
    """

    facts: dict[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor | None] = field(default_factory=dict)


class Recorder(TrainerCallback):
    """Writes every k-th step of a run. It needs no forward pass: the learner reports what its updates compute.

    Args:
        every: k, at least 1.
        step_extras: what the tier adds.
    """

    def __init__(self, every: int, step_extras: Callable[[Rollouts], StepExtras]) -> None:
        self.every = every
        self.step_extras = step_extras
        self.updated = UpdateLogp()

    def on_train_begin(self, run: RunContext) -> None:
        """Listen to the updates of the learner, if it reports them."""
        if hasattr(run.backend.learner, "on_logp"):
            run.backend.learner.on_logp = self.updated.add

    def on_step_end(self, run: RunContext, result: StepResult) -> None:
        """Record the step if it is its turn."""
        if result.step % self.every == 0:
            self.record(run, result)
        self.updated.clear()

    def record(self, run: RunContext, result: StepResult) -> None:
        """Write rollouts/step-N.safetensors; every process saw its own rows, the main one writes."""
        group = run.backend.process_group
        seen = gather_rows(self.updated.of(result.rollouts), result.rollouts, group)
        if group.is_main_process:
            recording = self.recording(run, result, seen)
            run.folder.rollouts.mkdir(mode=0o700, exist_ok=True)
            put(run.folder.rollouts / f"step-{result.step}.safetensors", encode(recording))

    def recording(self, run: RunContext, result: StepResult, seen: Tensor | None) -> Recording:
        """The step as it is kept."""
        rollouts, schedule, extras = result.rollouts, run.backend.schedule, self.step_extras(result.rollouts)
        about = {
            "tier": run.spec.tier,
            "env": run.spec.name,
            "objective": run.spec.objective,
            **extras.facts,
            "step": result.step,
            "version": rollouts.version,
            "seed": rollouts.seed,
            "run_seed": schedule.seed,
            "sampled": rollouts.sampled,
            "width": rollouts.width,
            "ministeps": schedule.ministeps,
            "drop_equal_groups": schedule.drop_equal_groups,
            "updates": [{key: value for key, value in update.items() if key != "seconds"} for update in result.updates],
        }
        known = {
            "prompts": rollouts.prompts,
            "responses": rollouts.responses,
            "reward": result.groups.reward,
            "mass": result.groups.mass,
            "logp_old": rollouts.logp_old,
            "logp_ref": rollouts.logp_ref,
            "correction": rollouts.correction,
            "logp_seen": seen,
            **extras.tensors,
        }
        return Recording(about, rollouts.mask.cpu(), {k: x.cpu() for k, x in known.items() if x is not None})


class UpdateLogp:
    """The log-probabilities that the updates of a step computed: each row's before its own update."""

    def __init__(self) -> None:
        self.parts: list[tuple[int, Sequence[int], Tensor]] = []

    def add(self, batch: Batch, rows: Sequence[int], logp: Tensor) -> None:
        """A learner's report of a forward pass, see `pmdkit.loop.LogpHook`."""
        self.parts.append((int(batch.group[0]), rows, logp.detach()))

    def clear(self) -> None:
        """The step is over."""
        self.parts = []

    def of(self, rollouts: Rollouts) -> Tensor | None:
        """[N, T], or [N] sums, of the rows of a step; NaN where no update scored a row, None if none was reported."""
        if not self.parts:
            return None
        count, width = rollouts.mask.shape
        size = rollouts.mass.shape[1]
        sums = width > 1 and all(logp.shape[1] == 1 for _, _, logp in self.parts)
        seen = np.full((count, 1 if sums else width), np.nan, self.parts[0][2].cpu().numpy().dtype)
        for first, rows, logp in self.parts:
            seen[first * size + np.asarray(rows)] = logp.cpu().numpy()
        return torch.from_numpy(seen[:, 0] if sums else seen)


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


def gather_rows(seen: Tensor | None, rollouts: Rollouts, process_group: ProcessGroup) -> Tensor | None:
    """What the processes saw, each its own rows; None where nobody saw any."""
    if process_group.size == 1:
        return seen
    axes = max(int(part) for part in process_group.gather(torch.tensor([0 if seen is None else seen.ndim])))
    if axes == 0:
        return None
    if seen is None:
        shape = rollouts.mask.shape if axes == 2 else rollouts.mask.shape[:1]
        seen = torch.full(shape, torch.nan)
    whole, *parts = process_group.gather(seen.double())
    for part in parts:
        whole = torch.where(torch.isnan(whole), part, whole)
    return whole
