"""Runs of `python -m pmdkit` as a person starts them: held in a step, killed, asked to stop, and what has to hold then.

The processes of a run are those whose working directory is its place.
"""

import hashlib
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest
from filelock import FileLock

from pmdkit.observe import checkpoint
from pmdkit.observe.run_folder import RunFolder

ROOT = Path(__file__).parents[2]
TINY = str(ROOT / "tests" / "llm" / "tiny.toml")
CHANGES = str(ROOT / "tests" / "llm" / "weight_changes.jsonl")
GATE = str(Path(__file__).with_name("processes_gate.py"))
PATIENCE = 600.0  # seconds for what takes a few on an idle machine, and minutes on a busy one
VARIES = ("seconds", "memory", "tokens_per")  # parts of the names of columns that no two runs share


class ProcessRun:
    """The run folder in a new place, which also steers the gate, and the processes that work on it one by one."""

    def __init__(
        self, place: Path, command: Sequence[str], settings: Sequence[str] = (), launcher: Sequence[str] = ()
    ) -> None:
        place.mkdir()
        self.place = place = place.resolve()  # as /proc has it
        self.out, self.log = place / "run", place / "stderr.txt"
        self.settings, self.kept, self.launcher = list(settings), list[bytes](), ["-m", *launcher] if launcher else []
        self.command = [*command, "--objective", f"{GATE}:Gated", "--out", str(self.out)]

    def start(self, *settings: str, hold: int | str = "", ranks: int = 1, **more) -> subprocess.Popen:
        """Start it; return once it stands still in its nth step (2: the first after one was saved), or at its "start",
        or once so many `ranks` do."""
        for path in self.place.glob("held-*"):
            path.unlink()
        given = [*self.settings, *settings]
        line = [sys.executable, *self.launcher, "-m", "pmdkit", *self.command, "--resume"]  # which also begins a run
        line += ["--set", *given] if given else []
        if hold:
            name = "hold" if isinstance(hold, int) else f"hold-{hold}"
            (self.place / name).write_text(str(hold))
        with open(self.log, "w") as log:
            options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": log, **more}
            process = subprocess.Popen(line, cwd=self.place, start_new_session=True, **options)
        for held in (range(ranks) if isinstance(hold, int) else [hold]) if hold else []:
            self.until((self.place / f"held-{held}").exists, process)
        return process

    def release(self) -> None:
        """Whoever stands still goes on."""
        for path in self.place.glob("hold*"):
            path.unlink()

    def until(self, happened: Callable[[], bool], process: subprocess.Popen) -> None:
        """Wait for something that a living process does."""
        deadline = time.monotonic() + PATIENCE
        while not happened():
            assert process.poll() is None, f"ended with {process.returncode}: {self.stderr}"
            assert time.monotonic() < deadline, self.stderr
            time.sleep(0.01)

    def end(self, process: subprocess.Popen, code: int) -> None:
        """It ends with a code; then nobody is left, the folder is free, and no saved step is made again."""
        try:
            assert process.wait(timeout=PATIENCE) == code, self.stderr
            deadline = time.monotonic() + 30
            while left := self.processes():
                assert time.monotonic() < deadline, left
                time.sleep(0.02)
        finally:
            self.release()
            for left in self.processes():  # only where one of the lines above failed
                left.kill()
        if self.out.exists():
            # the kernel closes the files of a killed process a moment after its folder is gone from /proc
            FileLock(self.out / "run.lock").acquire(timeout=30).lock.release()
        for number in self.saved():
            checkpoint.load_step(self.out / "checkpoints" / f"step-{number}", number)  # raises if it is damaged
        lines = self.lines()
        assert lines[: len(self.kept)] == self.kept  # a step that is made again takes another time: its line tells
        self.kept = lines[: max(self.saved(), default=0)]

    def processes(self) -> list[psutil.Process]:
        """Whatever works in this place."""
        return [process for process in psutil.process_iter(["cwd"]) if process.info["cwd"] == str(self.place)]

    def saved(self) -> list[int]:
        """Steps that have a checkpoint."""
        folder = self.out / "checkpoints"
        return checkpoint.steps(folder) if folder.exists() else []

    def lines(self) -> list[bytes]:
        """Whole lines of metrics.jsonl."""
        path = self.out / "metrics.jsonl"
        lines = path.read_bytes().splitlines(keepends=True) if path.exists() else []
        return [line for line in lines if line.endswith(b"\n")]

    @property
    def stderr(self) -> str:
        """What stands on stderr."""
        return self.log.read_text()

    @property
    def errors(self) -> list[str]:
        """Its lines that a person has to read."""
        return [line for line in self.stderr.splitlines() if "error" in line or "Traceback" in line]

    def digest(self) -> tuple[dict[str, str], list[dict]]:
        """The last checkpoint, evaluations and rollouts by their bytes; metrics and summary without times."""
        last = f"checkpoints/step-{max(self.saved())}"  # a run that was stopped has others before it
        folders = [self.out / name for name in (last, "evaluations", "rollouts")]
        paths = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
        found = {str(path.relative_to(self.out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
        rows = [*map(json.loads, self.lines()), json.loads((self.out / "summary.json").read_text())]
        varies = {key for row in rows for key in row if key == "out" or any(part in key for part in VARIES)}
        return found, [{key: row[key] for key in row.keys() - varies} for row in rows]


def chain(factory: pytest.TempPathFactory, name: str, command: Sequence[str], settings: Sequence[str], launcher=()):
    """A fixture's run, which faults strike one after another; in the end it has the bits of one left alone.

    That one is started by another `launcher` of the field, if one is named.
    """
    run = ProcessRun(factory.mktemp(name) / "struck", command, settings)
    yield run
    if not RunFolder(run.out).finished:
        run.end(run.start(), 0)
    whole = ProcessRun(run.place.with_name("whole"), command, settings, launcher)
    whole.end(whole.start(), 0)
    assert run.digest() == whole.digest()
