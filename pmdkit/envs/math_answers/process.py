"""A worker process as its parent holds it: started, spoken to with deadlines, killed. pool.py says who gets what."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from typing import Any

from pmdkit.envs.math_answers.frames import pack, unpack

STARTUP = 60.0
"Seconds for a worker to import what it needs; about half a second on an idle machine."
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "SYSTEMROOT")
"Environment variables that a worker sees; the others may hold secrets."


class WorkerFailed(Exception):
    """The worker cannot be used any more; the message says why."""


class CannotLoad(WorkerFailed):
    """What a worker was to load raised an error: another worker will meet it too."""


class OverTime(WorkerFailed):
    """The worker ended itself: an answer took more processor time than it may. No load of the machine does that."""


class Process:
    """One worker, alive from construction to `kill`.

    Args:
        grade: "math", or a file and a function such as "my.py:grade".
        seconds, memory_mb: limits per answer, enforced by the worker on itself too.
    """

    def __init__(self, grade: str, seconds: float, memory_mb: int) -> None:
        options = {"grade": grade, "seconds": seconds, "memory_mb": memory_mb, "parent": os.getpid()}
        environment = {name: os.environ[name] for name in KEPT if name in os.environ}
        environment |= {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONHASHSEED": "0"}
        environment |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self.calls = 0
        self.ready = False
        self.buffer = bytearray()
        try:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "pmdkit.envs.math_answers.worker", json.dumps(options)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                bufsize=0,
                start_new_session=True,  # Ctrl-C is the parent's affair
            )
        except OSError as error:
            raise WorkerFailed(f"a worker cannot be started: {error}") from error
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.requests, self.replies = self.popen.stdin.fileno(), self.popen.stdout.fileno()
        os.set_blocking(self.requests, False)
        os.set_blocking(self.replies, False)

    def await_ready(self) -> None:
        """Wait for the imports; WorkerFailed with the worker's own words if they fail."""
        if self.ready:
            return
        message = self.wait(time.monotonic() + STARTUP)
        if message is None:
            raise WorkerFailed(f"a worker was not ready after {STARTUP:.0f} s")
        if "failed" in message:
            raise CannotLoad(message["failed"])
        self.ready = True

    def send(self, message: dict[str, Any], deadline: float) -> None:
        """Hand a request over; a worker that does not take it by the deadline (monotonic seconds) has failed."""
        data = memoryview(pack(message))
        self.calls += 1
        while data:
            _, writable, _ = select.select([], [self.requests], [], max(deadline - time.monotonic(), 0))
            if not writable:
                raise WorkerFailed("the worker took no request in time")
            try:
                data = data[os.write(self.requests, data) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self.ended() from error

    def receive(self) -> dict[str, Any] | None:
        """A reply if it is complete, without waiting; WorkerFailed if the worker is gone or speaks nonsense."""
        try:
            part = os.read(self.replies, 1 << 16)
        except BlockingIOError:
            return None
        if not part:
            raise self.ended()
        self.buffer += part
        try:
            return unpack(self.buffer)
        except ValueError as error:
            raise WorkerFailed(f"the worker sent nonsense: {error}") from error

    def ended(self) -> WorkerFailed:
        """Why the pipe is closed."""
        with contextlib.suppress(subprocess.TimeoutExpired):  # a grader that closed the pipe and lives on is killed
            if self.popen.wait(timeout=1.0) == -signal.SIGPROF:
                return OverTime("over its limit of processor time")
        return WorkerFailed("the worker died")

    def wait(self, deadline: float) -> dict[str, Any] | None:
        """A reply, or None at the deadline (monotonic seconds)."""
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self.replies], [], [], left)[0] and (message := self.receive()) is not None:
                return message
        return None

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.popen.poll() is None

    def kill(self) -> None:
        """End it and whatever it started, at once, and collect it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                pipe.close()
