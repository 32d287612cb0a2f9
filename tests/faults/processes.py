"""Runs of `python -m pmdkit` as a person starts them: what has to hold after each end, and what they connect to.

A `ProcessRun` is started, held, killed and looked at. `watch` looks at a command from outside and from inside: who
listens, who connects, which names are looked up. Linux only.
"""

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path

import pytest
from filelock import FileLock

from pmdkit.observe import checkpoint

ROOT = Path(__file__).parents[2]
TINY = str(ROOT / "tests" / "llm" / "tiny.toml")
GATE = str(Path(__file__).with_name("processes_gate.py"))
PATIENCE = 180.0  # seconds for what takes a few on an idle machine
SAVED_WITHIN = 25.0  # after SIGTERM: schedulers commonly kill after 30
GONE_WITHIN = 30.0  # after the end of the process that was started


class ProcessRun:
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


class Chain(ProcessRun):
    """A case that faults strike one after another, and the same run undisturbed, which goes on beside it."""

    def __init__(self, place: Path, command: Sequence[str], settings: Sequence[str] = ()) -> None:
        super().__init__(place, command, settings)
        self.whole = ProcessRun(place.with_name(f"{place.name}-whole"), command, settings)
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


# Connections.
#
# From outside: /proc/net of every process that carries a mark in its environment, ranks and workers among them. From
# inside: an audit hook in each Python process, which also refuses what would leave the machine, so nothing is sent.

LISTENING = "0A"  # of /proc/net/tcp, see proc(5)
OFTEN = 0.05  # seconds between two looks
LEFT_TO_THEM = (
    "DO_NOT_TRACK",
    "HF_HUB_OFFLINE",
    "HF_HUB_DISABLE_TELEMETRY",
    "VLLM_NO_USAGE_STATS",
    "TRANSFORMERS_OFFLINE",
)
HOOK = '''
"""Written by tests/faults/processes.py: says which sockets this process uses, and refuses those that leave it."""
import json, os, sys
PLACE = os.open(os.path.join(os.path.dirname(__file__), "told.jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
HERE = {"localhost", "127.0.0.1", "::1", os.uname().nodename, "", "None"}
def hook(event, args):
    if event in ("socket.connect", "socket.sendto", "socket.bind"):
        if not isinstance(args[1], tuple):
            return  # a path of this machine
        place = str(args[1][0])
    elif event in ("socket.getaddrinfo", "socket.gethostbyname"):
        place = str(args[0])
    else:
        return
    os.write(PLACE, (json.dumps([event, place, sys.argv[:2]]) + "\\n").encode())
    if place not in HERE and not place.startswith("127.") and event != "socket.bind":
        raise PermissionError(f"{event} {place}")
sys.addaudithook(hook)
'''


@dataclass
class SeenSockets:
    """What a command did.

    Attributes:
        code: its exit code.
        told: stdout and stderr.
        processes: ids of all that were seen.
        listening, connected: addresses with ports, of all processes.
        asked: events of Python's sockets: name, address.
    """

    code: int = -1
    told: str = ""
    processes: set[int] = field(default_factory=set)
    listening: set[str] = field(default_factory=set)
    connected: set[str] = field(default_factory=set)
    asked: set[tuple[str, str]] = field(default_factory=set)

    def elsewhere(self) -> list[str]:
        """Everything that is not on loopback."""
        found = [f"listens on {place}" for place in self.listening if not loopback(place)]
        found += [f"connected to {place}" for place in self.connected if not loopback(place)]
        names = {"localhost", os.uname().nodename, "", "None"}
        found += [f"{event} {place}" for event, place in self.asked if place not in names and not loopback(place)]
        return sorted(found)


def watch(command: list[str], folder: Path, seconds: float = 300.0, **more: str) -> SeenSockets:
    """Run a command to its end. What it may not do it is refused, and it is told in `elsewhere`."""
    hook = folder / "watched-hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK)
    environment = {name: value for name, value in os.environ.items() if name not in LEFT_TO_THEM}
    environment |= {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": f"{hook}{os.pathsep}{ROOT}",
        "HF_HOME": str(folder / "hf"),
    } | more
    seen, until = SeenSockets(), time.monotonic() + seconds
    with (folder / "told.txt").open("wb") as told:
        process = subprocess.Popen(command, env=environment, cwd=folder, stdout=told, stderr=told)
        try:
            while process.poll() is None and time.monotonic() < until:
                look(str(hook).encode(), seen)
                time.sleep(OFTEN)
        finally:
            process.kill()
            process.wait()
    seen.code, seen.told = process.returncode, (folder / "told.txt").read_text(errors="replace")
    told_by_hook = hook / "told.jsonl"
    for line in told_by_hook.read_text().splitlines() if told_by_hook.exists() else []:
        event, place, _ = json.loads(line)
        seen.asked.add((event, place))
    return seen


def look(mark: bytes, seen: SeenSockets) -> None:
    """One look at the sockets of all processes with a mark."""
    ours: set[str] = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark not in (process / "environ").read_bytes():
                continue
            seen.processes.add(int(process.name))
            links = [os.readlink(place) for place in (process / "fd").iterdir()]
        except OSError:  # it ended in between, or belongs to somebody else
            continue
        ours |= {link[len("socket:[") : -1] for link in links if link.startswith("socket:[")}
    for kind in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{kind}").read_text().splitlines()[1:]:
            _, here, there, state, *rest = line.split()
            if rest[5] in ours:
                (seen.listening if state == LISTENING else seen.connected).add(
                    address(here if state == LISTENING else there)
                )


def address(text: str) -> str:
    """`0100007F:1F90` of /proc/net as `127.0.0.1 8080`; each 32 bits in the order of this machine."""
    digits, port = text.split(":")
    raw = bytes.fromhex(digits)
    words = b"".join(raw[at : at + 4][:: -1 if sys.byteorder == "little" else 1] for at in range(0, len(raw), 4))
    family = socket.AF_INET if len(words) == 4 else socket.AF_INET6
    return f"{socket.inet_ntop(family, words)} {int(port, 16)}"


def loopback(place: str) -> bool:
    """Whether an address, with a port or without, is of this machine alone."""
    try:
        found = ip_address(place.split()[0].split("%")[0])
    except ValueError:  # a name
        return False
    mapped = getattr(found, "ipv4_mapped", None)
    return bool((mapped or found).is_loopback)
