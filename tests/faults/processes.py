"""Runs of `python -m pmdkit` as a person starts them, and what has to hold after each of their ends."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from filelock import FileLock

from pmdkit.observe import checkpoint

ROOT = Path(__file__).parents[2]
TINY = str(ROOT / "tests" / "llm" / "tiny.toml")
GATE = str(Path(__file__).with_name("processes_gate.py"))
PATIENCE = 180.0  # seconds for what takes a few on an idle machine
SAVED_WITHIN = 25.0  # after SIGTERM: schedulers commonly kill after 30
GONE_WITHIN = 5.0  # after the end of the process that was started


class Case:
    """One run folder, and the processes that work on it one after another.

    Args:
        place: a new folder: it holds the run's folder, steers the gate, and is the working directory of whatever is
            started, by which every descendant is found again, whatever its session and environment.
        command: arguments of pmdkit.
        settings: for --set.
    """

    def __init__(self, place: Path, command: Sequence[str], settings: Sequence[str] = ()) -> None:
        place.mkdir()
        self.place = place = place.resolve()  # as /proc has it
        self.out, self.log = place / "run", place / "stderr.txt"
        self.settings, self.kept = list(settings), list[bytes]()
        self.command = [*command, "--objective", f"{GATE}:Gated", "--out", str(self.out)]

    def start(
        self,
        *settings: str,
        hold: int | str = "",
        ranks: int = 1,
        shown: bool = False,
        shell: Sequence[str] = (),
        **more,
    ) -> subprocess.Popen:
        """A process in a session of its own, as from a terminal of its own.

        Args:
            settings: more of them, this time.
            hold: return when it stands still there: in its nth step, of which 2 is the first after one was saved, in
                "grade", or at its "start".
            ranks: how many stand still in a step.
            shown: with progress on stderr.
            shell: a command that starts it.
            more: for Popen.
        """
        self.log.write_text("")
        for path in self.place.glob("held-*"):
            path.unlink()
        given = [*self.settings, *settings]
        line = [sys.executable, "-m", "pmdkit", *self.command, "--resume"]  # which also begins a run
        line += ["--set", *given] if given else []
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
        options = {"cwd": self.place, "env": environment, "start_new_session": True}
        if hold:
            self.hold(hold)
        with open(self.log, "a") as log:
            options |= {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": log}
            process = subprocess.Popen([*shell, *line, *([] if shown else ["--json"])], **(options | more))
        for place in (range(ranks) if isinstance(hold, int) else [hold]) if hold else []:
            self.held(process, place)
            assert process.pid in self.processes()
        return process

    def hold(self, where: int | str) -> None:
        """Whoever comes there stands still."""
        name, call = ("hold", where) if isinstance(where, int) else (f"hold-{where}", "")
        (self.place / name).write_text(str(call))

    def held(self, process: subprocess.Popen, where: int | str) -> None:
        """Wait until a rank stands still in its step, or a process there."""
        self.until((self.place / f"held-{where}").exists, process)

    def release(self, where: str = "") -> None:
        """They go on."""
        (self.place / (f"hold-{where}" if where else "hold")).unlink(missing_ok=True)

    def until(self, happened: Callable[[], bool], process: subprocess.Popen) -> None:
        """Wait for something that a living process does."""
        deadline = time.monotonic() + PATIENCE
        while not happened():
            assert process.poll() is None, f"ended with {process.returncode}: {self.said}"
            assert time.monotonic() < deadline, self.said
            time.sleep(0.01)

    def end(self, process: subprocess.Popen, code: int, within: float = PATIENCE) -> None:
        """It ends with a code in time; then nobody is left, the folder is free and what it holds is whole."""
        asked = time.monotonic()
        try:
            assert process.wait(timeout=PATIENCE) == code, self.said
            assert time.monotonic() - asked < within
            self.assert_left_well()
        finally:
            for path in self.place.glob("hold*"):
                path.unlink()
            for pid in self.processes():  # only where one of the lines above failed
                os.kill(pid, signal.SIGKILL)

    def assert_left_well(self) -> None:
        """No process after some seconds, a lock that can be taken, whole checkpoints, and no saved step made again.

        A step that is made again comes to the same numbers, but not in the same time: its line tells.
        """
        deadline = time.monotonic() + GONE_WITHIN
        while left := self.processes():
            assert time.monotonic() < deadline, [command_line(pid) for pid in left]
            time.sleep(0.02)
        if self.out.exists():
            # the kernel closes the files of a killed process a moment after its folder is gone from /proc
            FileLock(self.out / "run.lock").acquire(timeout=GONE_WITHIN).lock.release()
        for number in self.saved():
            assert checkpoint.damage(self.out / "checkpoints" / f"step-{number}", number) is None
        lines, saved = self.lines(), max(self.saved(), default=0)
        assert [json.loads(line)["step"] for line in lines] == list(range(1, len(lines) + 1))
        assert lines[: len(self.kept)] == self.kept
        assert len(lines) >= saved
        self.kept = lines[:saved]

    def processes(self) -> list[int]:
        """Whatever works in this place, by its working directory."""
        return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cwd") if points_to(path, self.place)]

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
    def said(self) -> str:
        """What stands on stderr."""
        return self.log.read_text()

    @property
    def errors(self) -> list[str]:
        """Its lines but for notes and warnings: what a person has to read."""
        return [line for line in self.said.splitlines() if "error" in line or "Traceback" in line]

    def digest(self) -> tuple[dict[str, str], list[dict]]:
        """Weights, optimizer, evaluations and rollouts by their bytes; metrics and summary without wall-clock keys."""
        folders = [self.out / name for name in ("checkpoints", "evaluations", "rollouts")]
        paths = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
        found = {str(path.relative_to(self.out)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}
        summary = json.loads((self.out / "summary.json").read_text())
        rows = [*map(json.loads, self.lines()), {key: value for key, value in summary.items() if key != "out"}]
        return found, [{k: v for k, v in row.items() if not k.startswith("seconds")} for row in rows]


class Chain(Case):
    """A case that faults strike one after another, and the same run undisturbed, which goes on beside it."""

    def __init__(self, place: Path, command: Sequence[str], settings: Sequence[str] = ()) -> None:
        super().__init__(place, command, settings)
        self.whole = Case(place.with_name(f"{place.name}-whole"), command, settings)
        self.undisturbed = self.whole.start()

    def close(self) -> None:
        """Nothing of a failed test goes on."""
        for case in (self, self.whole):
            for pid in case.processes():
                os.kill(pid, signal.SIGKILL)
        self.undisturbed.wait()

    def assert_same_bits(self) -> None:
        """Both have come to their end, and to the same one."""
        self.whole.end(self.undisturbed, 0)
        assert self.digest() == self.whole.digest()


def chain(factory: pytest.TempPathFactory, name: str, command: Sequence[str], settings: Sequence[str] = ()):
    """A fixture's chain in a place of its own."""
    made = Chain(factory.mktemp(name) / "struck", command, settings)
    yield made
    made.close()


def points_to(link: Path, place: Path) -> bool:
    """Whether a link of /proc leads there; processes that end, and those of others, do not."""
    try:
        return os.readlink(link) == str(place)
    except OSError:
        return False


def command_line(pid: int) -> str:
    """For a person who looks why it is still there."""
    return f"{pid}: {Path(f'/proc/{pid}/cmdline').read_bytes().replace(bytes(1), b' ').decode()}"


def children(pid: int) -> list[int]:
    """Processes that one started, in their order."""
    return [int(number) for number in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
