"""The process between a trainer and a server it starts: `python serve_guard.py command ...`. Standard library only.

A killed API server leaves vLLM's engine and worker processes running and holding their memory. This process lives in
a session of its own, which they all belong to, and ends them when its input closes, as it does when the trainer ends
in whatever way, or when the server ends.
"""

import contextlib
import ctypes
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

GRACE = 4.0  # seconds for a server to end by itself after SIGTERM; an idle one needs two
TIDY = 2.0  # seconds for vLLM's resource tracker to remove shared memory of processes that were killed
DIE_WITH_PARENT, ADOPT_ORPHANS = 1, 36  # PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER of <linux/prctl.h>


def guard(command: list[str]) -> int:
    """Run a command until it ends or the input closes; nothing that it started is left. Returns its exit code."""
    control(ADOPT_ORPHANS, 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # meant for all of a job: the server hears it itself
        signal.signal(number, lambda *_: None)  # handled and not ignored, which the server would inherit
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=lambda: control(DIE_WITH_PARENT, 9))
    while child.poll() is None and not select.select([sys.stdin], [], [], 0.1)[0]:
        pass
    if child.poll() is None:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)
    end_session(os.getpid())
    return child.wait()


def end_session(session: int) -> None:
    """Kill all processes of a session but its leader; resource trackers last, after they have tidied up."""
    until = time.monotonic() + TIDY
    while others := members(session):
        late = time.monotonic() > until
        for pid, tracker in others.items():
            with contextlib.suppress(ProcessLookupError):
                # a tracker that was stopped with the others goes on, to tidy up
                os.kill(pid, signal.SIGKILL if late or not tracker else signal.SIGCONT)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if late and time.monotonic() > until + TIDY:
            return
        time.sleep(0.02)


def members(session: int) -> dict[int, bool]:
    """Processes of a session but its leader, and whether each is a resource tracker of multiprocessing."""
    found: dict[int, bool] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, its = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(its) == session and int(folder.name) != session and state not in "ZX":
                found[int(folder.name)] = b"resource_tracker" in (folder / "cmdline").read_bytes()
        except (OSError, ValueError):  # it ended in between
            continue
    return found


def control(option: int, value: int) -> None:
    """One prctl of this process. Linux only; elsewhere the input that closes has to do."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1:]) % 256)
