"""Planted bugs in the writing of checkpoints. Each replaces what it must and leaves the format to the real code."""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from pmdkit.observe import checkpoint, files

Save = Callable[..., None]


def replace_save(make: Callable[[Save], Save]) -> None:
    """Another `save_step`, made from the real one."""
    checkpoint.save_step = make(checkpoint.save_step)


def in_place() -> None:
    """Files are written into step-N one by one; there is nothing to rename."""
    write, rename = files.write, os.rename

    def write_in_place(path: Path, data: bytes, *mode: int) -> None:
        unfinished = re.fullmatch(r"\.(step-\d+)\.part", path.parent.name)
        if unfinished:
            path = path.parent.with_name(unfinished[1]) / path.name
            path.parent.mkdir(exist_ok=True)
        write(path, data, *mode)

    def rename_nothing(source: Path, target: Path) -> None:
        if source.name.endswith(".part"):
            source.rmdir()
        else:
            rename(source, target)

    files.write, os.rename = write_in_place, rename_nothing


def prune_first() -> None:
    """Room is made for the new checkpoint before it is written."""

    def make(real: Save) -> Save:
        def save(folder: Path, step: int, state: Any, keep: int, beside: Any = None) -> None:
            found = checkpoint.steps(folder)
            for old in found[: len(found) - keep + 1]:
                shutil.rmtree(folder / f"step-{old}")
            real(folder, step, state, keep, beside)

        return save

    replace_save(make)


def take_unfinished() -> None:
    """The highest number is the newest checkpoint, whether it was finished or not, and nothing is checked."""

    def load_newest(folder: Path) -> tuple[int, dict[str, Any], list[str]]:
        found = {int(path.name.split("-")[1].split(".")[0]): path for path in folder.glob("*step-*")}
        if not found:
            return 0, {}, []
        path = found[max(found)].rename(folder / f"step-{max(found)}")
        state = json.loads((path / "state.json").read_bytes())
        tensors = {file.stem: load_file(file) for file in path.glob("*.safetensors")}
        optimizer = checkpoint.join_optimizer(tensors.pop("optimizer"), state.pop("optimizer"))
        return max(found), {**tensors, "optimizer": optimizer, **state}, []

    checkpoint.load_newest = load_newest


def acknowledge_early() -> None:
    """A checkpoint is written at the next one's turn, as a writer in the background may do that is not waited for."""

    def make(real: Save) -> Save:
        waiting: list[tuple[Any, ...]] = []

        def save(folder: Path, step: int, state: Any, keep: int, beside: Any = None) -> None:
            waiting.append((folder, step, deepcopy(state), keep, beside))
            if len(waiting) > 1 or step == 6:
                for one in waiting:
                    real(*one)
                waiting.clear()

        return save

    replace_save(make)


def write_outside() -> None:
    """What is to be written is put together in a temporary file."""

    def make(real: Save) -> Save:
        def save(folder: Path, step: int, state: Any, keep: int, beside: Any = None) -> None:
            with tempfile.NamedTemporaryFile() as file:
                file.write(b"weights")
                real(folder, step, state, keep, beside)

        return save

    replace_save(make)


def mix() -> None:
    """Each checkpoint has the optimizer's state of the one before."""

    def make(real: Save) -> Save:
        before: list[Any] = []

        def save(folder: Path, step: int, state: Any, keep: int, beside: Any = None) -> None:
            before.append(deepcopy(state["optimizer"]))
            real(folder, step, {**state, "optimizer": before[-2:][0]}, keep, beside)

        return save

    replace_save(make)
