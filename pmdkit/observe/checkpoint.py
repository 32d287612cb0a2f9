"""Checkpoints: a step's whole state, acknowledged by one rename, checked by sums before it is trusted."""

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from pmdkit.errors import EnvironmentLacks, ResumeRefused
from pmdkit.observe import files, manifest
from pmdkit.observe.manifest import Damaged

WEIGHTS = ("model", "reference", "adapter", "pending")
STEP = re.compile(r"step-(0|[1-9][0-9]{0,17})")


def save_step(
    folder: Path, step: int, state: dict[str, Any], keep: int, beside: Mapping[str, bytes] | None = None
) -> None:
    """Write checkpoints/step-N and drop the oldest beyond `keep`. Until the rename, the previous one is the newest.

    Args:
        folder: checkpoints/ of a run.
        step: completed steps.
        state: of the learner: `model` (tensors), `optimizer` (a torch state dict), perhaps `reference` and `adapter`
            (tensors), and plain values.
        keep: checkpoints to keep.
        beside: further files by name, such as what makes the folder one that transformers loads.

    Raises:
        OSError: the disk is full, or fails. The checkpoints before this one are as they were.
    """
    sweep(folder)
    aside, target = folder / f".step-{step}.part", folder / f"step-{step}"
    contents = {**(beside or {}), **contents_of(state)}
    told = manifest.describe(step, manifest.run_of(folder), contents)
    try:
        aside.mkdir(mode=0o700)
        for name, data in contents.items():
            files.write(aside / name, data)
        files.write(aside / manifest.NAME, told)
        files.sync(aside)
        os.rename(aside, target)
    except OSError as problem:  # a full disk: what was begun goes, the checkpoints before it stay
        with suppress(OSError):  # the first error is the one to tell
            files.remove(aside)
        raise files.explained(problem, target, sum(map(len, contents.values())) + len(told)) from problem
    files.sync(folder)
    prune(folder, step, keep)


def prune(folder: Path, step: int, keep: int) -> None:
    """Drop the oldest checkpoints up to a step that is acknowledged, but for the last `keep`."""
    for old in [number for number in steps(folder) if number <= step][:-keep]:
        gone = folder / f".step-{old}.part"  # renamed first: a step that is listed is never half deleted
        os.rename(folder / f"step-{old}", gone)
        files.remove(gone)


def contents_of(state: dict[str, Any]) -> dict[str, bytes]:
    """The files of a state by name."""
    tensors, plain = split(state["optimizer"])
    rest = {k: v for k, v in state.items() if k not in (*WEIGHTS, "optimizer")}
    about = {"format": "pt"}  # transformers asks for it; a second key would be written in random order
    weights = {
        f"{name}.safetensors": save({k: v.contiguous() for k, v in state[name].items()}, about)
        for name in WEIGHTS
        if name in state
    }
    return {
        **weights,
        "optimizer.safetensors": save(tensors, about),
        "state.json": files.encode({"optimizer": plain, **rest}),
    }


def steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint, in order. No other spelling of a number is a step: step-007 is none."""
    found = (STEP.fullmatch(name) for name in names(folder))
    return sorted(int(match[1]) for match in found if match)


def names(folder: Path) -> list[str]:
    """What calls itself a step in a folder, in order; a folder that is not there holds nothing."""
    try:
        return sorted(name for name in os.listdir(folder) if name.startswith("step-"))
    except FileNotFoundError:
        return []
    except OSError as problem:  # not empty, for all that is known
        raise EnvironmentLacks(
            f"{folder} cannot be read ({problem.strerror}); nothing was changed: mend that, then go on with --resume"
        ) from problem


def load_newest(folder: Path) -> tuple[int, dict[str, Any], list[str]]:
    """The newest checkpoint that is whole, with a warning for each that was not.

    A damaged one is renamed to step-N.corrupt, never deleted, and the one before it is taken.

    Returns:
        Step, state and warnings; step 0 and an empty state where no checkpoint was ever acknowledged.

    Raises:
        ResumeRefused: there are checkpoints, and none of them can be loaded.
    """
    sweep(folder)
    step, state, damaged = find_newest(folder)
    warnings = []
    for number, problem in damaged:
        path = folder / f"step-{number}"
        target = put_aside(path)
        warnings.append(f"checkpoint {path} is damaged ({problem}); it is now {target.name}, an older one is used")
    return step, state, warnings


def find_newest(folder: Path) -> tuple[int, dict[str, Any], list[tuple[int, str]]]:
    """The newest checkpoint that is whole, and what is wrong with each newer one. Nothing is changed.

    Returns and raises what `load_newest` does.
    """
    damaged: list[tuple[int, str]] = []
    for step in reversed(steps(folder)):
        try:
            return step, read(folder / f"step-{step}", step), damaged
        except Damaged as problem:
            damaged.append((step, str(problem)))
    if held := names(folder):  # a run that had a checkpoint never starts again from its first step unasked
        told = "; ".join(f"step-{step}: {problem}" for step, problem in damaged) or f"it holds {', '.join(held)}"
        raise ResumeRefused(
            f"no loadable checkpoint in {folder}: every one is damaged ({told}); nothing was changed: start again with "
            f"another --out, or delete {folder}"
        )
    return 0, {}, []


def told(folder: Path, damaged: list[tuple[int, str]]) -> list[str]:
    """A warning for each damaged checkpoint of a folder that is only read."""
    return [f"checkpoint {folder / f'step-{n}'} is damaged ({why}); an older one is used" for n, why in damaged]


def damage(path: Path, step: int) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        read(path, step)
    except Damaged as problem:
        return str(problem)
    return None


def read(path: Path, step: int | None = None) -> dict[str, Any]:
    """The state in a checkpoint folder: of the given step, or of whichever it says.

    Each file is checked and decoded before the next one is read, so that hardly more than the state is in memory.

    Raises:
        Damaged: anything in it is not as it was written.
        ResumeRefused: it is of another run, or of a newer format.
        EnvironmentLacks: the machine does not let it be read.
    """
    told = manifest.read_manifest(path)
    manifest.check_place(told, told.step if step is None else step, manifest.run_of(path.parent))
    for name in WEIGHTS:
        if f"{name}.safetensors" not in told.sha256 and os.path.lexists(path / f"{name}.safetensors"):
            raise Damaged(f"it holds {name}.safetensors, which its manifest does not name")
    try:
        weights = {
            name: load(told.read(f"{name}.safetensors")) for name in WEIGHTS if f"{name}.safetensors" in told.sha256
        }
        tensors = load(told.read("optimizer.safetensors"))
        rest = json.loads(told.read("state.json"))
        state = {**weights, "optimizer": join(tensors, rest.pop("optimizer")), **rest}
    except (SafetensorError, KeyError, TypeError) as problem:
        raise Damaged(f"{type(problem).__name__}: {problem}") from problem
    ours = {f"{name}.safetensors" for name in (*WEIGHTS, "optimizer")} | {"state.json"}
    for name in told.sha256.keys() - ours:
        told.check(name)
    return state


def sweep(folder: Path) -> None:
    """Delete what a killed process was writing or deleting."""
    for leftover in folder.glob(".step-*.part"):
        files.remove(leftover)


def put_aside(path: Path) -> Path:
    """Rename a damaged checkpoint; an earlier one of the same name stays too."""
    endings = ["corrupt", *(f"corrupt-{number}" for number in range(2, 1000))]
    targets = (path.with_name(f"{path.name}.{ending}") for ending in endings)
    target = next(target for target in targets if not os.path.lexists(target))
    os.rename(path, target)
    return target


def split(optimizer: dict[str, Any]) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A torch optimizer's state as named tensors and plain values, so that no pickle is ever loaded."""
    tensors, plain = {}, {}
    for index, slots in optimizer["state"].items():
        for name, value in slots.items():
            if isinstance(value, torch.Tensor):
                tensors[f"{index}.{name}"] = value.contiguous()
            else:
                plain[f"{index}.{name}"] = value
    return tensors, {"slots": plain, "param_groups": optimizer["param_groups"]}


def join(tensors: dict[str, Tensor], plain: dict[str, Any]) -> dict[str, Any]:
    """The inverse of `split`."""
    state: dict[int, dict[str, Any]] = {}
    for key, value in {**tensors, **plain["slots"]}.items():
        index, _, name = key.partition(".")
        state.setdefault(int(index), {})[name] = value
    return {"state": state, "param_groups": plain["param_groups"]}
