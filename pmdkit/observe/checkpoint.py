"""Checkpoints: a step's whole state, acknowledged by one rename, checked by sums before it is trusted."""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from pmdkit.errors import ResumeRefused
from pmdkit.observe import files

FORMAT = 1
WEIGHTS = ("model", "reference", "adapter", "pending")


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
    """
    aside = folder / f".step-{step}.part"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    tensors, plain = split(state["optimizer"])
    rest = {k: v for k, v in state.items() if k not in (*WEIGHTS, "optimizer")}
    about = {"format": "pt"}  # transformers asks for it; a second key would be written in random order
    contents = {
        **(beside or {}),
        **{
            f"{name}.safetensors": save({k: v.contiguous() for k, v in state[name].items()}, about)
            for name in WEIGHTS
            if name in state
        },
        "optimizer.safetensors": save(tensors, about),
        "state.json": files.encode({"optimizer": plain, **rest}),
    }
    sums = {name: hashlib.sha256(data).hexdigest() for name, data in contents.items()}
    try:
        for name, data in contents.items():
            files.write(aside / name, data)
        files.write(aside / "manifest.json", files.encode({"format": FORMAT, "step": step, "sha256": sums}))
        files.sync(aside)
        os.rename(aside, folder / f"step-{step}")
    except OSError:  # a full disk: what was begun goes, the checkpoints before it stay
        shutil.rmtree(aside, ignore_errors=True)
        raise
    files.sync(folder)
    for old in steps(folder)[:-keep]:
        shutil.rmtree(folder / f"step-{old}")


def steps(folder: Path) -> list[int]:
    """Steps that have a checkpoint, in order."""
    found = (re.fullmatch(r"step-(\d+)", path.name) for path in folder.glob("step-*"))
    return sorted(int(match[1]) for match in found if match)


def load_newest(folder: Path) -> tuple[int, dict[str, Any], list[str]]:
    """The newest checkpoint that is whole, with a warning for each that was not.

    A damaged one is renamed to step-N.corrupt, never deleted, and the one before it is taken.

    Returns:
        Step, state and warnings; step 0 and an empty state where no checkpoint was ever acknowledged.
    """
    warnings: list[str] = []
    for step in reversed(steps(folder)):
        path = folder / f"step-{step}"
        problem = damage(path, step)
        if problem is None:
            return step, read(path), warnings
        target = path.with_name(f"{path.name}.corrupt")
        shutil.rmtree(target, ignore_errors=True)
        os.rename(path, target)
        warnings.append(f"checkpoint {path} is damaged ({problem}); it is now {target.name}, an older one is used")
    if warnings:
        raise ResumeRefused(
            f"no loadable checkpoint in {folder}: every one is damaged ({problem}); start again with another --out"
        )
    return 0, {}, warnings


def damage(path: Path, step: int) -> str | None:
    """What is wrong with a checkpoint, or None."""
    try:
        manifest = json.loads((path / "manifest.json").read_bytes())
        if manifest["format"] != FORMAT:
            return f"format {manifest['format']}, expected {FORMAT}"
        if manifest["step"] != step:
            return f"it is of step {manifest['step']}"
        for name, wanted in manifest["sha256"].items():
            if hashlib.sha256((path / name).read_bytes()).hexdigest() != wanted:
                return f"{name} does not match its checksum"
        read(path)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as problem:
        return f"{type(problem).__name__}: {problem}"
    return None


def read(path: Path) -> dict[str, Any]:
    """The state in a checkpoint folder."""
    rest = json.loads((path / "state.json").read_bytes())
    weights = {
        name: load((path / f"{name}.safetensors").read_bytes())
        for name in WEIGHTS
        if name == "model" or (path / f"{name}.safetensors").exists()
    }
    optimizer = join(load((path / "optimizer.safetensors").read_bytes()), rest.pop("optimizer"))
    return {**weights, "optimizer": optimizer, **rest}


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
