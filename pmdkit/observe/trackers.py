"""Copies of the metrics for TensorBoard, Weights & Biases and Trackio. metrics.jsonl stays the truth; a copy may fail.

Each tracker lives in a thread of its own behind a short queue: it cannot stop a run, nor make it wait.
"""

import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from queue import Full, Queue
from typing import Any

from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.nearest import unknown
from pmdkit.observe import redact
from pmdkit.observe.sinks import TRACKERS, Scalars, Sink
from pmdkit.printable import printable

WAITING = 1000  # rows; a tracker that is so far behind loses the next ones
PATIENCE = 10.0  # seconds that the end of a run waits for a tracker


class Background:
    """One tracker in a daemon thread. What goes wrong there is told once, by the thread that logs."""

    def __init__(self, name: str, folder: Path, config: dict[str, Any], warn: Callable[[str], None]) -> None:
        self.name = name
        self.warn = warn
        self.dropped = 0
        self.trouble: str | None = None
        self.told = False
        self.rows: Queue[tuple[int, Scalars] | None] = Queue(WAITING)
        self.thread = threading.Thread(target=self.work, args=(folder, config), name=f"tracker {name}", daemon=True)
        self.thread.start()

    def log(self, step: int, values: Scalars) -> None:
        """Hand over a row, or count it as dropped."""
        try:
            if self.trouble is None:
                self.rows.put_nowait((step, values))
        except Full:
            self.dropped += 1
            self.tell(f"is {WAITING} rows behind; it misses some")
        if self.trouble is not None:
            self.tell(f"failed ({self.trouble}); it gets no more rows")

    def close(self) -> None:
        """Wait for the last rows, but not for long."""
        deadline = time.monotonic() + PATIENCE
        with suppress(Full):
            self.rows.put(None, timeout=PATIENCE)
            self.thread.join(max(0.0, deadline - time.monotonic()))
        if self.trouble is not None:
            self.tell(f"failed ({self.trouble})")
        elif self.thread.is_alive():
            self.tell(f"does not answer; {self.dropped + self.rows.qsize()} rows or more are missing there")
        elif self.dropped:
            self.warn(f"the tracker {self.name} missed {self.dropped} rows; metrics.jsonl has them all")

    def tell(self, what: str) -> None:
        """One warning, then silence."""
        if not self.told:
            self.told = True
            self.warn(f"the tracker {self.name} {what}; the run goes on, and metrics.jsonl has every row")

    def work(self, folder: Path, config: dict[str, Any]) -> None:
        """The thread: rows in order, until there are no more or something fails."""
        sink: Sink | None = None
        try:
            while (row := self.rows.get()) is not None:
                step, values = row
                if sink is None:
                    sink = TRACKERS[self.name][1](folder, config, step)
                sink.log(values, step)
            if sink is not None:
                sink.close()
        except BaseException as problem:  # whatever a tracker raises, SystemExit included, the run goes on
            said = redact.text(" ".join(str(problem).split()))  # some name the address they called, keys included
            self.trouble = f"{type(problem).__name__}: {printable(said[:200])}"


class Trackers:
    """All trackers of a run."""

    def __init__(self, trackers: Sequence[Background]) -> None:
        self.trackers = trackers

    def log(self, row: dict[str, Any]) -> None:
        """A row of metrics.jsonl; its numbers are passed on, tables and what has no meaning are not."""
        values = {key: float(value) for key, value in row.items() if key != "step" and is_number(value)}
        for tracker in self.trackers:
            tracker.log(row["step"], values)

    def close(self) -> None:
        """At the end of the run, however it ends."""
        for tracker in self.trackers:
            tracker.close()


def check_trackers(names: Sequence[str]) -> None:
    """Refuse names that are not known, and packages that are not here."""
    for name in names:
        if name not in TRACKERS:
            raise UsageError(unknown("tracker in run.report_to", name, TRACKERS))
        package = TRACKERS[name][0]
        if find_spec(package) is None:
            raise EnvironmentLacks(f"run.report_to has {name}, which is not installed; pip install {package}")


def make_trackers(
    names: Sequence[str], folder: Path, config: dict[str, Any], warn: Callable[[str], None] | None = None
) -> Trackers:
    """The trackers of [run] report_to. Nothing is opened, and no network is used, before the first row.

    Args:
        names: keys of TRACKERS.
        folder: of the run.
        config: what the run is, for the tracker to show.
        warn: told once per tracker that fails; by default a line on stderr.

    Raises:
        UsageError: a name that is not known.
        EnvironmentLacks: a package that is not installed.
    """
    check_trackers(names)
    told = warn or (lambda sentence: print(f"pmdkit: warning: {sentence}", file=sys.stderr))
    shown = redact.value(config)  # what is told to others holds no secret
    return Trackers([Background(name, folder, shown, told) for name in dict.fromkeys(names)])


def is_number(value: Any) -> bool:
    """Whether a tracker can draw it."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
