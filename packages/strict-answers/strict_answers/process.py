"""A worker process as its owner sees it: it starts, answers through a pipe by a deadline, and may be killed."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

LARGEST = 1 << 28
"Bytes of a message; a longer one means a corrupt stream."
STARTUP = 60.0
"Seconds for a worker to import what it needs; about half a second on an idle machine."
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "SYSTEMROOT")
"Environment variables that a worker sees; the others may hold secrets."
Message = dict[str, Any]
"A JSON object on a line. No pickle, because a worker reads model output and may run other people's code."
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def encode(message: Message) -> bytes:
    """A message as a line of ASCII. Lone surrogates in model output survive as JSON escapes."""
    return json.dumps(message, allow_nan=False).encode() + b"\n"


class WorkerFailed(RuntimeError):
    """The worker cannot be used any more; the message says why."""


class CannotLoad(WorkerFailed):
    """The code that a worker had to load raised an error: another worker would fail too."""


class OverTime(WorkerFailed):
    """The worker ended itself: an answer exceeded its processor time, whatever the load of the machine."""


@dataclass(frozen=True)
class Judge:
    """The code that a worker loads, and its limits.

    Attributes:
        load: "module:function"; called in the worker as function(argument, seconds), it returns the judge, a callable
            from a request to a reply, both JSON objects. If that has an attribute `takes`, the owner is told it.
        argument: in JSON.
        seconds: limit per request. If sealed it is processor time; a judge that is not may wait, and only the owner's
            clock stops it.
        memory_mb: MiB that a request may make the worker allocate.
        sealed: the judge needs no files, processes or descriptors, so the worker gives them up.
    """

    load: str
    argument: Any = None
    seconds: float = 0.8
    memory_mb: int = 1024
    sealed: bool = True


class WorkerProcess:
    """A worker, running from construction to `kill`.

    It leads its own session, so that Ctrl-C in a terminal reaches only its owner, and dies with its owner.

    Raises:
        WorkerFailed: it cannot be started.
    """

    def __init__(self, judge: Judge) -> None:
        self.calls = 0
        self.ready = False
        self.takes: Any = None  # arguments that the loaded judge takes
        self.buffer = bytearray()
        seen = {name: os.environ[name] for name in INHERITED if name in os.environ}
        seen |= {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part), "PYTHONHASHSEED": "0"}
        seen["PYTHONSAFEPATH"] = "1"  # like -P below, for programs that a judge starts
        seen |= dict.fromkeys(THREADS, "1")
        options = json.dumps({**asdict(judge), "parent": os.getpid()})
        try:
            self.popen = subprocess.Popen(
                # -P: a file called json.py in the current directory is not imported
                [sys.executable, "-P", "-m", "strict_answers.worker", options],
                env=seen,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                bufsize=0,
                start_new_session=True,
            )
        except OSError as error:
            raise WorkerFailed(f"a worker cannot be started: {error}") from error
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.requests, self.replies = self.popen.stdin.fileno(), self.popen.stdout.fileno()
        os.set_blocking(self.requests, False)
        os.set_blocking(self.replies, False)

    def await_ready(self) -> None:
        """Wait for the imports; WorkerFailed with the worker's own message if they fail."""
        if self.ready:
            return
        deadline = time.monotonic() + STARTUP
        message = None
        while message is None and (left := deadline - time.monotonic()) > 0:
            if select.select([self.replies], [], [], left)[0]:
                message = self.receive()
        if message is None:
            raise WorkerFailed(f"a worker was not ready after {STARTUP:.0f} s")
        if "failed" in message:
            raise CannotLoad(message["failed"])
        self.takes = message.get("takes")
        self.ready = True

    def send(self, message: Message, deadline: float) -> None:
        """Send a request; WorkerFailed if it is not JSON, or not accepted by the deadline (monotonic seconds)."""
        self.calls += 1
        try:
            data = memoryview(encode(message))
        except Exception as error:
            raise WorkerFailed(f"the request cannot be written as JSON: {error}") from error
        while data:
            _, writable, _ = select.select([], [self.requests], [], max(deadline - time.monotonic(), 0))
            if not writable:
                raise WorkerFailed("the worker did not accept a request in time")
            try:
                data = data[os.write(self.requests, data) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise self.failure() from error

    def receive(self) -> Message | None:
        """A reply if it is complete, without waiting; WorkerFailed if the worker has died or sends nonsense."""
        try:
            part = os.read(self.replies, 1 << 16)
        except BlockingIOError:
            return None
        if not part:
            raise self.failure()
        self.buffer += part
        line, ended, rest = self.buffer.partition(b"\n")
        if not ended and len(line) <= LARGEST:
            return None
        self.buffer = rest
        try:
            message = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise WorkerFailed(f"the worker sent nonsense: {error}") from error
        if not isinstance(message, dict):
            raise WorkerFailed("the worker sent nonsense: a message that is not an object")
        return message

    def failure(self) -> WorkerFailed:
        """Why the pipe to the worker is closed."""
        with contextlib.suppress(subprocess.TimeoutExpired):  # a worker that closed its pipe and goes on is killed
            if self.popen.wait(1.0) == -signal.SIGPROF:
                return OverTime("over its limit of processor time")
        return WorkerFailed("the worker died")

    def kill(self) -> None:
        """Kill the worker and its process group at once, reap it, and close its pipes."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
