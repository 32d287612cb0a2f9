"""A recorded step: its file format, and the callback that writes it during a run; pmdkit-lab reads and replays it.

rollouts/step-N.safetensors holds tensors, and everything else as JSON in its header; docs/use/gauges.md has the fields.
Nothing in it depends on the clock, the path or the number of resumes: a recomputed step has the same bytes.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.numpy import save
from torch import Tensor

from pmdkit.fit import RunContext, StepResult, TrainerCallback
from pmdkit.loop import Rollouts
from pmdkit.objectives import Batch
from pmdkit.observe import files
from pmdkit.process_group import ProcessGroup

RECORDING_FORMAT = 1
KEY = "pmdkit"  # the only key of the header: safetensors writes several in random order
TOKENS = ("responses", "logp_old", "logp_engine", "logp_ref", "logp_seen", "logp_after", "correction", "versions")
MACHINES = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Recording:
    """One step: the responses, their rewards, and their log-probabilities under each policy.

    Attributes:
        about: JSON values: step, tier, env, objective, schedule, updates, and what a tier adds.
        mask: [N, T] boolean, True on response tokens.
        tensors: tensors by name. Those in TOKENS may be [n, T], one number per token of the first n rows, 0 outside
            the mask.
    """

    about: dict[str, Any]
    mask: Tensor
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def get(self, name: str) -> Tensor | None:
        """A tensor, or None if it was not recorded."""
        return self.tensors.get(name)


@dataclass(frozen=True)
class StepExtras:
    """A tier's additions to a recorded step: JSON `facts` such as `passed`, the reward above which a response is right,
    and `tensors`, such as `logp_engine`; None for one that this step lacks."""

    facts: dict[str, Any] = field(default_factory=dict)
    tensors: Mapping[str, Tensor | None] = field(default_factory=dict)


@dataclass
class Recorder(TrainerCallback):
    """Records every k-th step of a run. It needs no forward pass: the learner reports what its updates compute."""

    every: int
    step_extras: Callable[[StepResult], StepExtras]
    updates: list[tuple[int, Sequence[int], Tensor]] = field(default_factory=list, init=False)  # prompt, rows, logp

    def on_train_begin(self, run: RunContext) -> None:
        """Subscribe to the learner's updates, if it reports them."""
        if hasattr(run.backend.learner, "on_logp"):
            run.backend.learner.on_logp = self.on_logp

    def on_logp(self, batch: Batch, rows: Sequence[int], logp: Tensor) -> None:
        """Take a learner's report of a forward pass, see `pmdkit.loop.LogpHook`."""
        self.updates.append((int(batch.group[0]), rows, logp.detach()))

    def on_step_end(self, run: RunContext, result: StepResult) -> None:
        """Write the step if it is due: every process contributes its own rows, the main one writes."""
        if result.step % self.every == 0:
            group = run.backend.process_group
            seen = gather_rows(self.logp_seen(result.rollouts), result.rollouts, group)
            if group.is_main_process:
                run.folder.rollouts.mkdir(mode=0o700, exist_ok=True)
                path = run.folder.rollouts / f"step-{result.step}.safetensors"
                # not flushed, because that took ten times as long as the rest; a loss of power may damage the newest
                files.replace(path, encode(self.recording(run, result, seen)), flush=False)
        self.updates.clear()

    def recording(self, run: RunContext, result: StepResult, seen: Tensor | None) -> Recording:
        """The recording of a step."""
        rollouts, schedule, extras = result.rollouts, run.backend.schedule, self.step_extras(result)
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
            "logp_after": result.logp_after,
            **extras.tensors,
        }
        return Recording(about, rollouts.mask.cpu(), {k: x.cpu() for k, x in known.items() if x is not None})

    def logp_seen(self, rollouts: Rollouts) -> Tensor | None:
        """The log-probabilities that the updates of a step computed, each row's before its own update.

        [N, T], or [N] sums, for the rows of the step; NaN where no update scored a row, None if none was reported.
        """
        if not self.updates:
            return None
        count, width = rollouts.mask.shape
        size = rollouts.mass.shape[1]
        sums = width > 1 and all(logp.shape[1] == 1 for _, _, logp in self.updates)
        seen = np.full((count, 1 if sums else width), np.nan, self.updates[0][2].cpu().numpy().dtype)
        for first, rows, logp in self.updates:
            seen[first * size + np.asarray(rows)] = logp.cpu().numpy()
        return torch.from_numpy(seen[:, 0] if sums else seen)


def gather_rows(seen: Tensor | None, rollouts: Rollouts, process_group: ProcessGroup) -> Tensor | None:
    """Combine the rows that each process saw; None if no process saw any."""
    if process_group.size == 1:
        return seen
    axes = max(int(part) for part in process_group.gather(torch.tensor([0 if seen is None else seen.ndim])))
    if axes == 0:
        return None
    if seen is None:
        shape = rollouts.mask.shape if axes == 2 else rollouts.mask.shape[:1]
        seen = torch.full(shape, torch.nan)
    whole, *others = process_group.gather(seen.double())
    for part in others:
        whole = torch.where(whole.isnan(), part, whole)
    return whole


def encode(recording: Recording) -> bytes:
    """The file's bytes; the same recording gives the same bytes."""
    mask = recording.mask.numpy()
    flat = {"length": mask.sum(1, dtype=np.int64)}
    places = None if mask.all() else np.flatnonzero(mask)
    if places is not None and (mask[:, 1:] > mask[:, :-1]).any():
        flat["mask"] = mask  # the tokens are not a prefix of the row
    rows: dict[str, int] = {}
    for name, tensor in recording.tensors.items():
        flat[name] = tensor.detach().cpu().numpy()
        if name in TOKENS and tensor.ndim == 2:  # per token: only those in the mask, one response after another
            rows[name] = len(tensor)
            flat[name] = flat[name].reshape(-1)
            if places is not None:
                flat[name] = flat[name].take(places[: np.searchsorted(places, tensor.numel())])
    stored, how = {}, {}
    for name in sorted(flat):
        stored[name], how[name] = narrow(flat[name])
        if name in rows:
            how[name]["rows"] = rows[name]
    about = MACHINES.encode(recording.about | {"format": RECORDING_FORMAT, "columns": mask.shape[1], "tensors": how})
    header = f'{{"about":{about},"sha256":"{checksum(about, stored)}"}}'
    return save(stored, {KEY: header})


def checksum(about: str, stored: dict[str, NDArray[Any]]) -> str:
    """SHA-256 of everything in the file except the checksum itself."""
    digest = hashlib.sha256(about.encode())
    for name in sorted(stored):
        digest.update(stored[name].reshape(-1).data)
    return digest.hexdigest()


# Numbers in as few bytes as hold them exactly: one number for a constant array, small integers, float32. No rounding.
# Narrowing uses numpy: it runs in every recorded step, where a torch call costs more than the arithmetic in it.

SMALLER = {
    "int64": ("uint8", "int16", "int32"),
    "float64": ("uint8", "float32"),
    "float32": ("uint8",),
    "bool": ("uint8",),
}


def narrow(x: NDArray[Any]) -> tuple[NDArray[Any], dict[str, Any]]:
    """The stored form of an array, and how to restore it: `dtype`, and `shape` if one number stands for all.

    Exact to the bit, except for the sign of zero.
    """
    x = np.asarray(x, order="C")
    flat = x.reshape(-1)
    how: dict[str, Any] = {"dtype": x.dtype.name}
    # one element decides for most arrays, so it is compared first
    if x.size >= 2 and all(np.array_equal(y, np.full_like(y, flat[0]), equal_nan=True) for y in (flat[-1:], flat)):
        how["shape"], x = list(x.shape), flat[:1]
    for dtype in SMALLER.get(x.dtype.name, ()):
        with np.errstate(over="ignore", invalid="ignore"):  # a number that does not fit becomes another
            if all(np.array_equal(y.astype(dtype), y, equal_nan=True) for y in (x.reshape(-1)[:1], x)):
                return x.astype(dtype), how
    return x, how
