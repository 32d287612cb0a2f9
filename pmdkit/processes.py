"""Child processes: each runs in its own session, ends with its parent, and is killed as a whole group.

The verifier's workers, the launcher's workers, vLLM servers and the ranks of a run all start here. Standard library
only: workers import it before their memory is limited, and as a script (`guard`) it runs without the rest of the
package.
"""

import contextlib
import ctypes
import json
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

STARTUP = 60.0
"Seconds for a worker to import what it needs; about half a second on an idle machine."
INHERITED = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "SYSTEMROOT")
"Environment variables that a worker sees; the others may hold secrets."
MERCY = 20.0
"Seconds for a run to finish its step and to save once it is asked to stop."
GRACE = 4.0
"Seconds for a guarded command to end by itself after SIGTERM; an idle vLLM server needs two."
TIDY = 10.0
"Seconds for a resource tracker to remove the shared memory of killed processes; over 2 on a busy machine."
DIE_WITH_PARENT, ADOPT_ORPHANS = 1, 36  # PR_SET_PDEATHSIG and PR_SET_CHILD_SUBREAPER of <linux/prctl.h>


class ChildProcess:
    """A command that runs from construction on, in its own session: Ctrl-C in a terminal reaches only the parent.

    Args:
        command: argument list; no shell is involved.
        environment: the whole environment; None for that of this process.
        parent_death: a signal that the kernel sends the child when this process ends, however it ends (Linux only).
            Set between fork and exec; our own children call `die_with_parent` themselves instead.
        options: for `subprocess.Popen`.

    Raises:
        OSError: it cannot be started.
    """

    def __init__(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        parent_death: int | None = None,
        **options: Any,
    ) -> None:
        parent = os.getpid()
        options.setdefault("stdin", subprocess.DEVNULL)
        if parent_death is not None:
            options["preexec_fn"] = lambda: die_with_parent(parent, parent_death)
        self.popen: subprocess.Popen[bytes] = subprocess.Popen(
            list(command), env=None if environment is None else dict(environment), start_new_session=True, **options
        )
        self.pid = self.popen.pid

    @property
    def exit_code(self) -> int | None:
        """Its exit code, or minus the signal that killed it; None while it runs."""
        return self.popen.poll()

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self.exit_code is None

    def send_signal(self, number: int) -> None:
        """Send a signal to the process alone, if it still runs."""
        self.popen.send_signal(number)

    def wait(self, seconds: float) -> int | None:
        """Wait for its exit code; None if it still runs after so many seconds."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.popen.wait(max(0.0, seconds))
        return None

    def kill(self) -> None:
        """Kill it and everything in its process group at once, and reap it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self.popen.kill()
        self.popen.wait()
        for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


def stop_all(children: Iterable[ChildProcess], seconds: float) -> None:
    """Ask children to save and end, all at the same time; kill those that still run after so many seconds."""
    children = list(children)
    for child in children:
        child.send_signal(signal.SIGTERM)
    deadline = time.monotonic() + seconds
    for child in children:
        child.wait(deadline - time.monotonic())
        child.kill()


def exit_reason(code: int) -> str:
    """How a process ended, for a sentence: "was killed by SIGKILL", "ended with exit code 3"."""
    if code >= 0:
        return f"ended with exit code {code}"
    return f"was killed by {signal.Signals(-code).name if -code in list(signal.Signals) else f'signal {-code}'}"


def die_with_parent(parent: int, number: int = signal.SIGKILL) -> None:
    """Ask the kernel to signal this process when its parent dies; outside Linux, only a closed pipe shows that.

    Args:
        parent: the process that started this one; if it is gone already, this one ends here.
        number: the signal.
    """
    control(DIE_WITH_PARENT, number)
    if os.getppid() != parent:  # it ended before the line above
        os._exit(1)


def control(option: int, value: int) -> None:
    """Call prctl for this process. Linux only."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


@contextlib.contextmanager
def sigterm_interrupts() -> Iterator[None]:
    """Let SIGTERM stop the block as Ctrl-C does, so that children save and end first."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    main = threading.current_thread() is threading.main_thread()
    before = {n: signal.signal(n, interrupt) for n in ((signal.SIGTERM, signal.SIGINT) if main else ())}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def visible_devices() -> list[str]:
    """The accelerators that this process may use, as CUDA names them; empty on a machine without any."""
    if (named := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        names = [name.strip() for name in named.split(",")]
        return names if all(names) and "-1" not in names else []
    try:
        import torch
    except ModuleNotFoundError:  # a base install, where nothing uses a device
        return []
    return [str(number) for number in range(torch.cuda.device_count())]


# Workers: requests and replies through pipes, each four bytes of length and then JSON. No pickle, because what a worker
# runs is not trusted.

HEAD = struct.Struct(">I")
LARGEST = 1 << 28
"Limit, bytes; anything longer means a corrupt stream, not a message."
Message = dict[str, Any]


class WorkerFailed(Exception):
    """The worker cannot be used any more; the message says why."""


class WorkerProcess(ChildProcess):
    """A child running a module of this package that answers requests, with deadlines on this side.

    Args:
        module: run with `python -m`. It gets its options, and `parent`, as JSON; it calls `die_with_parent` and then
            `claim_pipes`.
        options: for the module.
        environment: variables beyond the few that are inherited.
        folder: its working directory.
        before: a command to run it under, such as one that makes namespaces.
        stderr: where its errors go, as for `subprocess.Popen`.

    Attributes:
        largest: limit for a reply, bytes.

    Raises:
        OSError: it cannot be started.
    """

    largest = LARGEST

    def __init__(
        self,
        module: str,
        options: Message,
        environment: Mapping[str, str] | None = None,
        folder: str | None = None,
        before: Sequence[str] = (),
        stderr: int | None = subprocess.DEVNULL,
    ) -> None:
        seen = {name: os.environ[name] for name in INHERITED if name in os.environ}
        seen |= {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONHASHSEED": "0"}
        seen |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        super().__init__(
            [*before, sys.executable, "-m", module, json.dumps({**options, "parent": os.getpid()})],
            {**seen, **(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=folder,
            bufsize=0,
        )
        assert self.popen.stdin is not None
        assert self.popen.stdout is not None
        self.requests, self.replies = self.popen.stdin.fileno(), self.popen.stdout.fileno()
        os.set_blocking(self.requests, False)
        os.set_blocking(self.replies, False)
        self.buffer = bytearray()

    def send(self, message: Message, deadline: float) -> None:
        """Send a request; a worker that does not take it by the deadline (monotonic seconds) has failed."""
        data = memoryview(encode_message(message))
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
        try:
            return take_message(self.buffer, self.largest)
        except ValueError as error:
            raise WorkerFailed(f"the worker sent nonsense: {error}") from error

    def receive_by(self, deadline: float) -> Message | None:
        """A reply, or None at the deadline (monotonic seconds)."""
        while (left := deadline - time.monotonic()) > 0:
            if select.select([self.replies], [], [], left)[0] and (message := self.receive()) is not None:
                return message
        return None

    def failure(self) -> WorkerFailed:
        """The error to raise for a closed pipe."""
        return WorkerFailed("the worker died")


def encode_message(message: Message) -> bytes:
    """A message as bytes. Lone surrogates in model output survive as JSON escapes."""
    body = json.dumps(message, allow_nan=False).encode()
    return HEAD.pack(len(body)) + body


def take_message(buffer: bytearray, largest: int = LARGEST) -> Message | None:
    """Remove the first message from `buffer` and return it; None while it is incomplete, ValueError if invalid."""
    if len(buffer) < HEAD.size:
        return None
    (length,) = HEAD.unpack_from(buffer)
    if length > largest:
        raise ValueError("a message with an impossible length")
    if len(buffer) < HEAD.size + length:
        return None
    message = json.loads(bytes(buffer[HEAD.size : HEAD.size + length]))
    del buffer[: HEAD.size + length]
    if not isinstance(message, dict):
        raise ValueError("a message that is not an object")
    return message


def claim_pipes() -> tuple[int, int]:
    """In a worker: claim the descriptors of requests and replies; stdin, stdout and stderr become /dev/null."""
    requests, replies = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # 2: math-verify logs whole answers, with their control characters
        os.dup2(nowhere, descriptor)
    return requests, replies


def receive_request(descriptor: int) -> Message | None:
    """In a worker: the next request; None when the parent has closed the pipe."""
    head = read_exactly(descriptor, HEAD.size)
    body = read_exactly(descriptor, HEAD.unpack(head)[0]) if head else None
    return None if body is None else json.loads(body)


def read_exactly(descriptor: int, count: int) -> bytes | None:
    """`count` bytes, or None at the end of the pipe."""
    parts = bytearray()
    while len(parts) < count:
        part = os.read(descriptor, count - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)


def send_reply(descriptor: int, message: Message) -> None:
    """In a worker: send a whole message."""
    data = memoryview(encode_message(message))
    while data:
        data = data[os.write(descriptor, data) :]


# The guard: a process between this one and a command whose children may outlive it. A killed vLLM API server leaves its
# engine and workers running, with the memory they hold. The guard leads a session that they all belong to. It kills
# them when the command ends, or when its input closes, which happens however this process ends.


class GuardedProcess(ChildProcess):
    """A command under a guard. Everything it starts in its session ends with it, and with this process.

    Args:
        command, environment: as for `ChildProcess`.
        log: file to which its output is appended.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        with log.open("ab") as out:  # descriptors are closed on exec, the guard's input among them
            guard = [sys.executable, "-I", __file__]
            super().__init__([*guard, *command], environment, stdin=subprocess.PIPE, stdout=out, stderr=out)

    def close(self) -> None:
        """End it and everything it started, within seconds."""
        assert self.popen.stdin is not None
        with contextlib.suppress(OSError):
            self.popen.stdin.close()
        if self.wait(GRACE + 3 * TIDY) is None:  # stopped, or swapped out
            self.popen.kill()
            self.wait(GRACE + 3 * TIDY)
        end_session(self.pid)  # a guard that was killed has not ended the others


def guard(command: list[str]) -> int:
    """Run a command until it ends or the input closes; nothing it started survives. Returns its exit code."""
    control(ADOPT_ORPHANS, 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):  # sent to a whole job: the command gets it too
        signal.signal(number, lambda *_: None)  # not ignored, which the command would inherit
    child = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, preexec_fn=lambda: control(DIE_WITH_PARENT, signal.SIGKILL)
    )
    while child.poll() is None and not select.select([sys.stdin], [], [], 0.1)[0]:
        pass
    if child.poll() is None:
        child.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)
    end_session(os.getpid())
    return child.wait()


def end_session(session: int) -> None:
    """Kill all processes of a session except its leader; resource trackers last, after they have cleaned up."""
    until = time.monotonic() + TIDY
    while others := session_members(session):
        late = time.monotonic() > until
        for pid, tracker in others.items():
            with contextlib.suppress(ProcessLookupError):
                # a tracker that was stopped with the others continues, to clean up
                os.kill(pid, signal.SIGKILL if late or not tracker else signal.SIGCONT)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if late and time.monotonic() > until + TIDY:
            return
        time.sleep(0.02)


def session_members(session: int) -> dict[int, bool]:
    """Processes of a session except its leader, and whether each is a multiprocessing resource tracker."""
    found: dict[int, bool] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, its = (folder / "stat").read_text().rpartition(")")[2].split()[:4]
            if int(its) == session and int(folder.name) != session and state not in "ZX":
                found[int(folder.name)] = b"resource_tracker" in (folder / "cmdline").read_bytes()
        except (OSError, ValueError):  # it ended in between
            continue
    return found


if __name__ == "__main__":
    sys.exit(guard(sys.argv[1:]) % 256)
