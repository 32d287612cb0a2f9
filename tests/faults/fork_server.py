"""A process that has imported everything forks a child for each run, sends it signals, and sees how it ends."""

import ctypes
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from .phases import Aim, Event, Trace

DIE_WITH_PARENT, ADOPT_ORPHANS = 1, 36  # PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER
HANGS = 120.0  # seconds after which a child that should have ended counts as hung
ORPHANS = 20.0  # seconds that what a dead child left may live; it takes far less than 5 on a machine that is idle
STOPPED = 75
ASKING = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Shot:
    """Signals at a time: the first `seconds` after the fork, the second `gap` seconds later."""

    seconds: float
    numbers: tuple[int, ...] = (signal.SIGKILL,)
    gap: float = 0.0


@dataclass
class Attempt:
    """How a child ended.

    Attributes:
        code: exit status, negative for the signal that ended it, as subprocess has it; None for one that hung.
        events: its trace.
        hit: the phases that were open when the first signal fell; None where none fell in time.
        seconds: that it lived.
        orphans: command lines of processes that outlived it for too long; they are ended.
        lingered: seconds until nothing was left that it had started.
        said: what it wrote.
    """

    code: int | None = None
    events: list[Event] = field(default_factory=list)
    hit: tuple[str, ...] | None = None
    seconds: float = 0.0
    orphans: list[str] = field(default_factory=list)
    lingered: float = 0.0
    said: str = ""


def become_server() -> None:
    """Make this process one that can fork: the only thread, and the parent of whatever its children leave behind."""
    import torch

    torch.set_num_threads(1)
    libc = ctypes.CDLL(None)
    libc.prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    libc.prctl(ADOPT_ORPHANS, 1, 0, 0, 0)


def attempt(work: Callable[[], None], place: Path, kill: Aim | Shot | None = None, counted: bool = False) -> Attempt:
    """Run `work` in a child, kill it as told, and wait for all that it started.

    Args:
        work: what the child does, in place/cwd with place/tmp for temporary files; its output goes to place/log.
        place: a folder of the test's own.
        kill: when; nothing is sent where it is None.
        counted: count the calls of each phase.
    """
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"the fork server has {threads} threads; a child would inherit their locks and not them"
    reading, writing = os.pipe()
    began = time.monotonic()
    signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)  # until the child can answer them
    child = os.fork()
    if child == 0:
        os.close(reading)
        become_child(work, place, Trace(writing, kill if isinstance(kill, Aim) else None, counted))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)
    os.close(writing)
    found = Attempt()
    watch(child, reading, found, kill if isinstance(kill, Shot) else None, began)
    os.close(reading)
    ended = time.monotonic()
    found.orphans = orphans()
    found.lingered = time.monotonic() - ended
    found.said = (place / "log").read_text(errors="replace")[-2000:]
    return found


def become_child(work: Callable[[], None], place: Path, trace: Trace) -> None:
    """Everything that a process of its own would have: signals, folders, output. Ends the process."""
    code = 1
    try:
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        output = os.open(place / "log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.chdir(place / "cwd")
        os.environ |= {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp")}
        tempfile.tempdir = None
        trace.install()
        signal.pthread_sigmask(signal.SIG_UNBLOCK, ASKING)
        work()
        code = 0
    except KeyboardInterrupt:
        code = STOPPED  # as the command line has it
    except BaseException as problem:
        traceback.print_exc()
        code = getattr(problem, "exit_code", 1)
    finally:
        signal.pthread_sigmask(signal.SIG_BLOCK, ASKING)
        sys.stderr.flush()
        os._exit(code)


def watch(child: int, pipe: int, found: Attempt, shot: Shot | None, began: float) -> None:
    """Read the trace until the child is gone, and send what is to be sent."""
    waiting = [] if shot is None else list(zip(shot.numbers, (shot.seconds, shot.seconds + shot.gap), strict=False))
    torn, deadline = b"", began + HANGS
    while True:
        until = began + waiting[0][1] if waiting else deadline
        if select.select([pipe], [], [], max(until - time.monotonic(), 0))[0]:
            part = os.read(pipe, 1 << 16)
            *lines, torn = (torn + part).split(b"\n")
            found.events += [Event.read(line.decode()) for line in lines]
            if not part:
                break
        elif waiting:
            os.kill(child, waiting.pop(0)[0])
            if found.hit is None and shot is not None and shot.numbers[0] != signal.SIGKILL:
                found.hit = open_phases(found.events)
            deadline = time.monotonic() + HANGS
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return
    found.code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    found.seconds = time.monotonic() - began
    sent = [n for n, event in enumerate(found.events) if event.mark == "*"]
    if sent:
        found.hit = open_phases(found.events[: sent[0]])
    elif found.code == -signal.SIGKILL and shot is not None and shot.numbers[0] == signal.SIGKILL:
        found.hit = open_phases(found.events)
    if found.code == 0:
        found.hit = None  # it came to its end before, or in the very step that it was asked to finish


def open_phases(events: list[Event]) -> tuple[str, ...]:
    """The phases that were entered and not left, in all threads."""
    inside: list[tuple[str, str]] = []
    for event in events:
        if event.mark == "+":
            inside.append((event.phase, event.thread))
        elif event.mark in "-!":
            last = max(n for n, one in enumerate(inside) if one == (event.phase, event.thread))
            del inside[last]
    return tuple(dict.fromkeys(phase for phase, _ in inside))


def orphans() -> list[str]:
    """Wait until no process is left that a child started; name and end those that stay."""
    until = time.monotonic() + ORPHANS
    pause = 0.001
    while time.monotonic() < until:
        try:
            if os.waitpid(-1, os.WNOHANG)[0] == 0:
                time.sleep(pause)
                pause = min(2 * pause, 0.1)
        except ChildProcessError:
            return []
    left = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it may end while it is looked at
            if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == os.getpid():
                left.append((folder / "cmdline").read_text().replace("\0", " ")[:200])
                os.kill(int(folder.name), signal.SIGKILL)
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    return left
