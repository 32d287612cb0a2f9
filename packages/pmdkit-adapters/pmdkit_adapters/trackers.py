"""Copies of the metrics for TensorBoard, Weights & Biases and Trackio, by accelerate, for [run] report_to.

metrics.jsonl stays authoritative: a tracker that fails is dropped with one warning, and the run goes on.
"""

import json
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from pmdkit.errors import EnvironmentLacks, printable
from pmdkit.observe import files
from pmdkit.observe.run_folder import redacted
from pmdkit.observe.telemetry import no_telemetry

no_telemetry()


class Trackers:
    """The trackers of [run] report_to. Nothing is opened, and no network is used, before the first row."""

    def __init__(self, names: Sequence[str], folder: Path, config: Any, warn: Callable[[str], None]) -> None:
        self.folder, self.config, self.warn = folder, redacted(config), warn  # trackers must not receive secrets
        self.open: dict[str, Any] = dict.fromkeys(names)

    @staticmethod
    def check(names: Sequence[str]) -> None:
        """Refuse packages that are not installed."""
        for name in names:
            if missing := [package for package in (name, "accelerate") if find_spec(package) is None]:
                lacks = f"run.report_to has {name}, and {missing[0]} is missing; pip install {missing[0]}"
                raise EnvironmentLacks(lacks)

    def log(self, row: dict[str, Any]) -> None:
        """Log the numbers of a row of metrics.jsonl."""
        numbers = {key: float(value) for key, value in row.items() if type(value) in (int, float) and key != "step"}
        self.each(row["step"], lambda tracker: tracker.log(numbers, step=row["step"]))

    def log_table(self, step: int, title: str, records: list[dict[str, Any]]) -> None:
        """Log a table, such as completions, as lines of JSON."""
        lines = {title: "\n\n".join(json.dumps(redacted(record)) for record in records)}
        self.each(step, lambda tracker: tracker.log(lines, step=step))

    def close(self) -> None:
        """Close all trackers at the end of the run, however it ends."""
        self.each(0, lambda tracker: tracker.finish())

    def each(self, step: int, act: Callable[[Any], object]) -> None:
        """Call a function on each tracker, opened at its first step; a tracker that fails is dropped."""
        for name in list(self.open):
            try:
                with redirect_stdout(sys.stderr):  # Trackio prints, and stdout is for data
                    if self.open[name] is None and step:
                        self.open[name] = open_tracker(name, self.folder, self.config, step)
                    if self.open[name] is not None:
                        act(self.open[name])
            except (Exception, SystemExit) as problem:  # some leave the process; some name the URL they called
                del self.open[name]
                reason = printable(redacted(" ".join(str(problem).split()))[:200])
                self.warn(
                    f"the tracker {name} failed ({type(problem).__name__}: {reason}); metrics.jsonl has every row"
                )


def open_tracker(name: str, folder: Path, config: Any, first: int) -> Any:
    """A tracker of accelerate. Nothing leaves the machine unless WANDB_MODE or TRACKIO_SPACE_ID say so."""
    from accelerate import PartialState, tracking

    PartialState(cpu=True)  # its trackers log through it; in a run of several processes it is there already
    if name == "tensorboard":  # a resumed run hides the steps that it computes again
        tracker: Any = tracking.TensorBoardTracker(name, folder, purge_step=first if first > 1 else None)
        tracker.start()
        return tracker
    if not (path := folder / "trackers.json").exists():  # drawn once, so that a resumed run continues on the server
        files.replace(path, files.encode({"id": secrets.token_hex(6)}))
    own, options = json.loads(path.read_text())["id"], {"resume": "allow", "config": config}
    if name == "wandb":
        mode, project = os.environ.get("WANDB_MODE", "offline"), os.environ.get("WANDB_PROJECT", "pmdkit")
        tracker = tracking.WandBTracker(project, dir=str(folder), id=own, name=folder.name, mode=mode, **options)
    else:
        import trackio

        class TrackioTracker(tracking.TrackioTracker):  # whose `finish` trackio repeats at exit, on stdout
            finish = tracking.on_main_process(lambda self: trackio.finish())

        options |= {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
        tracker = TrackioTracker("pmdkit", name=f"{folder.name}-{own}", **options)
    tracker.start()
    return tracker
