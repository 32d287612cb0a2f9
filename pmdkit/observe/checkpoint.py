"""Checkpoints: a step's whole state, acknowledged by one rename and verified by checksums before use.

The protocol of a save:

1. write every file into `checkpoints/.step-N.part` and flush it;
2. write and flush the manifest, with the size and SHA-256 of each file, then the names in the folder;
3. rename the folder to `step-N` and flush that name: from here on the checkpoint counts;
4. delete the oldest ones beyond `run.keep`.

A kill or a loss of power before step 3 leaves the checkpoint before it as the newest. A file that the manifest does not
name is not part of the checkpoint and is never read. Weights and optimizer are safetensors, the rest is JSON.

Checksums detect accidents. They are not a signature: whoever can write the folder can also write a matching manifest.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load, save

from pmdkit.errors import ResumeRefused
from pmdkit.foreign import parse_json
from pmdkit.observe import files
from pmdkit.observe.manifest import (
    MANIFEST,
    PARTS,
    WEIGHTS,
    Damaged,
    Manifest,
    check_origin,
    decoding,
    encode_manifest,
    read_manifest,
    recorded_inputs,
    run_identity,
    unreadable,
)

STEP = re.compile(r"step-(0|[1-9][0-9]{0,17})")  # no other spelling: step-007 is not a step


class Checkpoints:
    """The checkpoints of a run of one process: each is written while the step waits.

    Several processes use `pmdkit.llm.sharded_checkpoint`. All of them call the same methods in the same order.

    Args:
        folder: checkpoints/ of the run.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def load_newest(self) -> tuple[int, dict[str, Any], list[str]]:
        """See the function of that name."""
        return load_newest(self.folder)

    def save(self, step: int, state: dict[str, Any], keep: int, extra_files: Mapping[str, bytes] | None = None) -> None:
        """See `save_step`; an error may be raised only by the next `wait`."""
        save_step(self.folder, step, state, keep, extra_files)

    def wait(self) -> None:
        """Wait until everything saved is acknowledged; nothing is being written afterwards."""


# Saving.


def save_step(
    folder: Path, step: int, state: dict[str, Any], keep: int, extra_files: Mapping[str, bytes] | None = None
) -> None:
    """Write checkpoints/step-N and delete the oldest beyond `keep`.

    Args:
        folder, step: checkpoints/ of a run, and its completed steps.
        state: of the learner: `model` (tensors), `optimizer` (a torch state dict), perhaps `reference`, `adapter` and
            `pending` (tensors), and plain values.
        keep: checkpoints to keep.
        extra_files: by name, such as those that transformers needs to load the folder.

    Raises:
        OSError: the disk is full, or fails. The checkpoints before this one are unchanged.
    """
    tensors, plain = split_state(state)
    contents = {f"{part}.safetensors": encode_tensors(held) for part, held in tensors.items()}
    contents |= {"state.json": files.encode(plain), **(extra_files or {})}
    aside = folder / f".step-{step}.part"
    try:
        remove_leftovers(folder)
        aside.mkdir(mode=0o700)
        sums = write_files(aside, contents)
        acknowledge(folder, step, sums)
    except OSError as problem:  # a full disk: remove the unfinished one, keep the checkpoints before it
        with suppress(OSError):  # the first error is the one to report
            files.remove(aside)
        raise files.explain_error(problem, folder / f"step-{step}", sum(map(len, contents.values()))) from problem
    prune(folder, step, keep)


def write_files(folder: Path, contents: Mapping[str, bytes]) -> dict[str, tuple[str, int]]:
    """Write new files and flush them; returns the SHA-256 and the size of each."""
    for name, data in contents.items():
        files.write(folder / name, data, flush=False)
    for name in contents:  # flushed after all are written: the first flush often takes the others along
        files.sync(folder / name)
    return {name: (hashlib.sha256(data).hexdigest(), len(data)) for name, data in contents.items()}


def acknowledge(folder: Path, step: int, sums: Mapping[str, tuple[str, int]]) -> None:
    """Write the manifest of `.step-N.part`, whose files are on disk, and rename it to `step-N`."""
    aside = folder / f".step-{step}.part"
    files.write(aside / MANIFEST, encode_manifest(step, run_identity(folder), sums, recorded_inputs(folder)))
    files.sync(aside)
    os.rename(aside, folder / f"step-{step}")
    files.sync(folder)


def prune(folder: Path, step: int, keep: int) -> None:
    """Delete the checkpoints up to an acknowledged step, except the last `keep`."""
    for old in [number for number in steps(folder) if number <= step][:-keep]:
        gone = folder / f".step-{old}.part"  # renamed first: a step that is listed is never half deleted
        os.rename(folder / f"step-{old}", gone)
        files.remove(gone)


def remove_leftovers(folder: Path) -> None:
    """Delete what a killed process was writing or deleting."""
    for leftover in folder.glob(".step-*.part"):
        files.remove(leftover)


def encode_tensors(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """A safetensors file."""
    # transformers asks for this key; with a second one, the bytes would be in random order
    return save({name: tensor.contiguous() for name, tensor in tensors.items()}, {"format": "pt"})


def split_state(state: Mapping[str, Any]) -> tuple[dict[str, dict[str, torch.Tensor]], dict[str, Any]]:
    """The tensors of a state by part and name, and its plain values, so that no pickle is ever written or loaded."""
    slots: dict[str, torch.Tensor] = {}
    numbers: dict[str, Any] = {}
    for index, held in state["optimizer"]["state"].items():
        for name, value in held.items():
            (slots if isinstance(value, torch.Tensor) else numbers)[f"{index}.{name}"] = value
    tensors = {part: state[part] for part in WEIGHTS if part in state} | {"optimizer": slots}
    plain = {"optimizer": {"slots": numbers, "param_groups": state["optimizer"]["param_groups"]}}
    return tensors, plain | {name: value for name, value in state.items() if name not in PARTS}


def join_state(tensors: Mapping[str, Mapping[str, Any]], plain: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `split_state`."""
    slots: dict[int, dict[str, Any]] = {}
    for key, value in {**tensors["optimizer"], **plain["optimizer"]["slots"]}.items():
        index, _, name = key.partition(".")
        slots.setdefault(int(index), {})[name] = value
    optimizer = {"state": slots, "param_groups": plain["optimizer"]["param_groups"]}
    return {**plain, **tensors, "optimizer": optimizer}


# Loading.


def load_newest(folder: Path) -> tuple[int, dict[str, Any], list[str]]:
    """Load the newest checkpoint that is whole, with a warning for each that was not.

    A damaged one is renamed to step-N.corrupt, never deleted, and the one before it is used.

    Returns:
        Step, state and warnings; step 0 and an empty state if no checkpoint was ever acknowledged.

    Raises:
        ResumeRefused: there are checkpoints, and none of them can be loaded.
    """
    remove_leftovers(folder)
    step, state, damaged = find_newest(folder)
    return step, state, [set_aside(folder, *one) for one in damaged]


def find_newest(folder: Path) -> tuple[int, dict[str, Any], list[tuple[int, str]]]:
    """Find the newest checkpoint that is whole, and what is wrong with each newer one. Nothing is changed.

    Returns step, state and (step, problem) of each damaged one; raises what `load_newest` does.
    """
    damaged: list[tuple[int, str]] = []
    for step in reversed(steps(folder)):
        try:
            return step, load_step(folder / f"step-{step}", step), damaged
        except Damaged as problem:
            damaged.append((step, str(problem)))
    check_none(folder, damaged)
    return 0, {}, []


def check_none(folder: Path, damaged: list[tuple[int, str]]) -> None:
    """Refuse a folder without a loadable checkpoint: a run that had one never restarts from its first step unasked."""
    if held := [name for name in list_names(folder) if name.startswith("step-")]:
        found = "; ".join(f"step-{step}: {problem}" for step, problem in damaged) or f"it holds {', '.join(held)}"
        raise ResumeRefused(
            f"no loadable checkpoint in {folder}: every one is damaged ({found}); nothing was changed: start again "
            f"with another --out, or delete {folder}"
        )


def set_aside(folder: Path, step: int, problem: str) -> str:
    """Rename a damaged checkpoint; returns a warning. An earlier one of the same name is kept too."""
    path = folder / f"step-{step}"
    endings = ["corrupt", *(f"corrupt-{number}" for number in range(2, 1000))]
    targets = (path.with_name(f"{path.name}.{ending}") for ending in endings)
    target = next(target for target in targets if not os.path.lexists(target))
    os.rename(path, target)
    return f"checkpoint {path} is damaged ({problem}); it was renamed to {target.name}, and an older one is used"


def damage_warnings(folder: Path, damaged: list[tuple[int, str]]) -> list[str]:
    """A warning for each damaged checkpoint of a folder that is only read."""
    return [f"checkpoint {folder / f'step-{n}'} is damaged ({why}); an older one is used" for n, why in damaged]


def load_step(path: Path, step: int | None = None) -> dict[str, Any]:
    """The state in a checkpoint folder, of the given step or whichever step it records.

    Raises:
        Damaged: something in it differs from what was written.
        ResumeRefused: it is of another run, or of another format.
        EnvironmentLacks: the machine does not allow reading it.
    """
    manifest = read_manifest(path)
    check_origin(manifest, manifest.step if step is None else step, run_identity(path.parent))
    tensors: dict[str, dict[str, torch.Tensor]] = {}
    for part in manifest.parts():  # each file is checked and decoded before the next is read: memory holds one twice
        with decoding():
            if manifest.in_shards(part):
                tensors[part] = {name: stored.read() for name, stored in manifest.open_part(part).items()}
            else:
                tensors[part] = load(manifest.read(f"{part}.safetensors"))
    plain = read_plain(manifest)
    for name in manifest.sha256.keys() - manifest.checked:
        manifest.check(name)
    with decoding():
        return join_state(tensors, plain)


def read_plain(manifest: Manifest) -> dict[str, Any]:
    """The contents of state.json. Values that pmdkit never writes are refused here, not met in a later step."""
    with decoding():
        plain = parse_json(manifest.read("state.json"), "state.json", numbers=False)
        version, first = plain.get("version", 0), plain.get("first", {})
        if type(version) is not int or version < 0:
            raise Damaged("state.json holds a version that is not a count")
        if not all(first.get(key) is None or type(first[key]) in (int, float) for key in ("pass_rate", "reward")):
            raise Damaged("state.json holds a first evaluation that is not a number")
        if not isinstance(plain["optimizer"]["param_groups"], list):
            raise Damaged("state.json holds no parameter groups")
    return dict(plain)


def steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint, in order."""
    found = (STEP.fullmatch(name) for name in list_names(folder))
    return sorted(int(match[1]) for match in found if match)


def newest_inputs(checkpoints: Path) -> dict[str, str]:
    """The digests that the newest whole manifest holds."""
    for step in reversed(steps(checkpoints)):
        with suppress(Damaged):
            return dict(read_manifest(checkpoints / f"step-{step}").inputs)
    return {}


def list_names(folder: Path) -> list[str]:
    """The names in a folder, in order; a missing folder holds nothing."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as problem:  # it may not be empty
        raise unreadable(folder, problem) from problem
