"""TensorBoard, Weights & Biases and Trackio as places that numbers go to. Threads and failures are in trackers.py."""

import json
import os
import secrets
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from pmdkit.observe import files
from pmdkit.observe.telemetry import no_telemetry

Scalars = dict[str, float]
naming = threading.Lock()
no_telemetry()  # before a tracker is imported


class Sink(Protocol):
    """Where one tracker's rows go."""

    def log(self, values: Scalars, step: int) -> None:
        """One step."""

    def close(self) -> None:
        """Send what is left."""


Opener = Callable[[Path, dict[str, Any], int], Sink]


class TensorBoard:
    """Event files in tensorboard/ of the run; a resumed run hides what its rewind dropped."""

    def __init__(self, folder: Path, config: dict[str, Any], first: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(folder / "tensorboard", purge_step=first if first > 1 else None)
        if first == 1:
            self.writer.add_text("config", f"```\n{json.dumps(config, indent=2)}\n```", 0)

    def log(self, values: Scalars, step: int) -> None:
        """One scalar each."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """Flush."""
        self.writer.close()


class WandB:
    """A run of Weights & Biases, offline in wandb/ of the run folder unless WANDB_MODE says otherwise."""

    def __init__(self, folder: Path, config: dict[str, Any], first: int) -> None:
        import wandb

        mode: Any = os.environ.get("WANDB_MODE", "offline")
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "pmdkit"),
            dir=str(folder),
            id=identity(folder),
            name=folder.name,
            resume="allow",
            mode=mode,
            config=config,
            settings=wandb.Settings(silent=True, console="off"),
        )

    def log(self, values: Scalars, step: int) -> None:
        """One step."""
        self.run.log(values, step=step)

    def close(self) -> None:
        """Finish."""
        self.run.finish()


class Trackio:
    """A run of Trackio in its own folder (TRACKIO_DIR), local unless TRACKIO_SPACE_ID says otherwise."""

    def __init__(self, folder: Path, config: dict[str, Any], first: int) -> None:
        import trackio

        hush("trackio")
        self.run = trackio.init(
            project="pmdkit",
            name=f"{folder.name}-{identity(folder)}",
            resume="allow",
            config=config,
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, values: Scalars, step: int) -> None:
        """One step."""
        self.run.log(values, step=step)

    def close(self) -> None:
        """Finish."""
        self.run.finish()


TRACKERS: dict[str, tuple[str, Opener]] = {  # name -> package and sink
    "tensorboard": ("tensorboard", TensorBoard),
    "wandb": ("wandb", WandB),
    "trackio": ("trackio", Trackio),
}


def identity(folder: Path) -> str:
    """A name for the run on servers, drawn once and kept in its folder, so that a resumed run goes on there."""
    path = folder / "trackers.json"
    with naming:
        if not path.exists():
            files.replace(path, files.encode({"id": secrets.token_hex(6)}))
        return str(json.loads(path.read_text())["id"])


def hush(package: str) -> None:
    """A package that prints loses its print: stdout is for data, and turning it away would turn it for all threads."""
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == package:
            module.print = lambda *texts, **options: None  # type: ignore[attr-defined]
