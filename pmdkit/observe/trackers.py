"""Copies of the metrics for TensorBoard, Weights & Biases and Trackio; metrics.jsonl stays authoritative.

A copy may fail: each tracker runs in its own thread behind a short queue, and can neither stop a run nor make it wait.
accelerate.tracking has the same three, but logs only after accelerate has set up its own process state, beside the
process group of the run, and opens them in the training thread.
"""

import html
import json
import os
import secrets
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from queue import Full, Queue
from typing import Any, Protocol

from pmdkit.errors import EnvironmentLacks, UsageError, printable, unknown
from pmdkit.observe import files, redact

Scalars = dict[str, float]
Records = list[dict[str, Any]]

WAITING = 1000  # rows; a tracker this far behind loses the next ones
PATIENCE = 10.0  # seconds that the end of a run waits for a tracker
NO_TELEMETRY = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "WANDB_ERROR_REPORTING": "false",
    "GRADIO_ANALYTICS_ENABLED": "False",  # for Trackio
}
"Environment variables that libraries with telemetry read once, when they are imported."


class TrackerRun(Protocol):
    """Receives the rows of one tracker. The runs of wandb and trackio have this interface."""

    def log(self, values: dict[str, Any], step: int) -> Any:
        """Log the numbers of one step, or tables made by an entry of `TABLES`."""

    def finish(self) -> Any:
        """Send what is left."""


class Trackers:
    """All trackers of a run."""

    def __init__(self, trackers: Sequence["TrackerThread"]) -> None:
        self.trackers = trackers

    def log(self, row: dict[str, Any]) -> None:
        """Log a row of metrics.jsonl; its numbers are passed on, other values are not."""
        values = {
            key: float(value)
            for key, value in row.items()
            if key != "step" and isinstance(value, (int, float)) and not isinstance(value, bool)
        }
        for tracker in self.trackers:
            tracker.log(row["step"], values)

    def log_table(self, step: int, name: str, records: Records) -> None:
        """Log a table of a step, such as completions; its rows have the same keys."""
        for tracker in self.trackers:
            tracker.log(step, {name: redact.value(records)})

    def close(self) -> None:
        """Close all trackers at the end of the run, however it ends."""
        for tracker in self.trackers:
            tracker.close()


def make_trackers(
    names: Sequence[str], folder: Path, config: dict[str, Any], warn: Callable[[str], None] | None = None
) -> Trackers:
    """The trackers of [run] report_to. Nothing is opened, and no network is used, before the first row.

    `warn` is called once for each tracker that fails; by default it prints a line on stderr. Raises what
    `check_trackers` does.
    """
    check_trackers(names)
    warn = warn or (lambda sentence: print(f"pmdkit: warning: {sentence}", file=sys.stderr))
    shown = redact.value(config)  # others must not receive secrets
    return Trackers([TrackerThread(name, folder, shown, warn) for name in dict.fromkeys(names)])


def check_trackers(names: Sequence[str]) -> None:
    """Refuse unknown names, and packages that are not installed."""
    for name in names:
        if name not in TRACKERS:
            raise UsageError(unknown("tracker in run.report_to", name, TRACKERS))
        package = TRACKERS[name][0]
        if find_spec(package) is None:
            raise EnvironmentLacks(f"run.report_to has {name}, which is not installed; pip install {package}")


class TrackerThread:
    """One tracker in a daemon thread. Errors there become one warning, given by the thread that logs."""

    def __init__(self, name: str, folder: Path, config: dict[str, Any], warn: Callable[[str], None]) -> None:
        self.name = name
        self.warn = warn
        self.dropped = 0
        self.trouble: str | None = None
        self.warned = False
        self.rows: Queue[tuple[int, dict[str, Any]] | None] = Queue(WAITING)
        self.thread = threading.Thread(target=self.work, args=(folder, config), name=f"tracker {name}", daemon=True)
        self.thread.start()

    def log(self, step: int, values: dict[str, Any]) -> None:
        """Hand over a row, or count it as dropped. A value is a number, or the records of a table."""
        try:
            if self.trouble is None:
                self.rows.put_nowait((step, values))
        except Full:
            self.dropped += 1
            self.warn_once(f"is {WAITING} rows behind and misses some")
        if self.trouble is not None:
            self.warn_once(f"failed ({self.trouble}); it gets no more rows")

    def close(self) -> None:
        """Wait for the last rows, but not for long."""
        deadline = time.monotonic() + PATIENCE
        with suppress(Full):
            self.rows.put(None, timeout=PATIENCE)
            self.thread.join(max(0.0, deadline - time.monotonic()))
        if self.trouble is not None:
            self.warn_once(f"failed ({self.trouble})")
        elif self.thread.is_alive():
            self.warn_once(f"does not answer; {self.dropped + self.rows.qsize()} rows or more are missing there")
        elif self.dropped:
            self.warn(f"the tracker {self.name} missed {self.dropped} rows; metrics.jsonl has them all")

    def warn_once(self, what: str) -> None:
        """One warning, then silence."""
        if not self.warned:
            self.warned = True
            self.warn(f"the tracker {self.name} {what}; the run goes on, and metrics.jsonl has every row")

    def work(self, folder: Path, config: dict[str, Any]) -> None:
        """Run the thread: log rows in order, until there are no more or something fails."""
        run: TrackerRun | None = None
        try:
            while (row := self.rows.get()) is not None:
                step, values = row
                if run is None:
                    run = TRACKERS[self.name][1](folder, config, step)
                make_table = TABLES[self.name]
                run.log(
                    {key: make_table(value) if isinstance(value, list) else value for key, value in values.items()},
                    step=step,
                )
            if run is not None:
                run.finish()
        except BaseException as problem:  # whatever a tracker raises, SystemExit included, the run goes on
            reason = redact.text(" ".join(str(problem).split()))  # some include the URL they called, with its keys
            self.trouble = f"{type(problem).__name__}: {printable(reason[:200])}"


class TensorBoardRun:
    """Event files in tensorboard/ of the run; a resumed run hides what its rewind dropped."""

    def __init__(self, folder: Path, config: dict[str, Any], first: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(folder / "tensorboard", purge_step=first if first > 1 else None)
        self.finish = self.writer.close
        if first == 1:
            self.writer.add_text("config", f"```\n{json.dumps(config, indent=2)}\n```", 0)

    def log(self, values: dict[str, Any], step: int) -> None:
        """Log numbers as scalars, tables as text."""
        for name, value in values.items():
            if isinstance(value, str):
                self.writer.add_text(name, value, step)
            else:
                self.writer.add_scalar(name, value, step)


def markdown_table(records: Records) -> str:
    """Records as a Markdown table; a cell is escaped text on one line."""

    def cells(values: Iterable[Any]) -> str:
        texts = ("<br>".join(html.escape(str(value)).replace("|", "&#124;").splitlines()) for value in values)
        return "| " + " | ".join(texts) + " |"

    heads = list(records[0])
    return "\n".join([cells(heads), "|---" * len(heads) + "|", *(cells(record.values()) for record in records)])


def frame_of(records: Records) -> Any:
    """Records as a data frame, from which W&B and Trackio make tables."""
    from pandas import DataFrame

    return DataFrame(records)


def wandb_table(records: Records) -> Any:
    """Make a Weights & Biases table."""
    import wandb

    return wandb.Table(dataframe=frame_of(records))


def trackio_table(records: Records) -> Any:
    """Make a Trackio table."""
    import trackio

    return trackio.Table(dataframe=frame_of(records))


def open_wandb(folder: Path, config: dict[str, Any], first: int) -> TrackerRun:
    """Open a run of Weights & Biases, offline in wandb/ of the run folder unless WANDB_MODE says otherwise."""
    import wandb

    mode: Any = os.environ.get("WANDB_MODE", "offline")
    run: TrackerRun = wandb.init(
        project=os.environ.get("WANDB_PROJECT", "pmdkit"),
        dir=str(folder),
        id=run_id(folder),
        name=folder.name,
        resume="allow",
        mode=mode,
        config=config,
        settings=wandb.Settings(silent=True, console="off"),
    )
    return run


def open_trackio(folder: Path, config: dict[str, Any], first: int) -> TrackerRun:
    """Open a run of Trackio in its own folder (TRACKIO_DIR), local unless TRACKIO_SPACE_ID says otherwise."""
    import trackio

    for name, module in list(sys.modules.items()):
        # it prints, but stdout is for data; redirecting stdout would affect all threads
        if name.split(".")[0] == "trackio":
            module.print = lambda *texts, **options: None  # type: ignore[attr-defined]
    run: TrackerRun = trackio.init(
        project="pmdkit",
        name=f"{folder.name}-{run_id(folder)}",
        resume="allow",
        config=config,
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )
    return run


TRACKERS: dict[str, tuple[str, Callable[[Path, dict[str, Any], int], TrackerRun]]] = {  # name -> package and opener
    "tensorboard": ("tensorboard", TensorBoardRun),
    "wandb": ("wandb", open_wandb),
    "trackio": ("trackio", open_trackio),
}

TABLES: dict[str, Callable[[Records], Any]] = defaultdict(
    lambda: markdown_table, {"wandb": wandb_table, "trackio": trackio_table}
)
"Makes the table of a tracker; by default text."

naming = threading.Lock()


def run_id(folder: Path) -> str:
    """An id for the run on servers, drawn once and kept in its folder, so that a resumed run continues there."""
    path = folder / "trackers.json"
    with naming:
        if not path.exists():
            files.replace(path, files.encode({"id": secrets.token_hex(6)}))
        return str(json.loads(path.read_text())["id"])


def no_telemetry() -> None:
    """Disable the telemetry of other libraries, here and in every process that inherits the environment.

    Call it before transformers, vLLM or a tracker is imported. A variable that is already set is kept.
    """
    for name, value in NO_TELEMETRY.items():
        os.environ.setdefault(name, value)


no_telemetry()
