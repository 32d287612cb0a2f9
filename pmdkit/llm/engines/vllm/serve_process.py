"""A server in processes of its own: started under a guard, watched, and ended with all that it started.

What is started is serve_command.py, the guard is serve_guard.py.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pmdkit.errors import EnvironmentLacks
from pmdkit.llm.engines.vllm import serve_guard

TELLING = re.compile(r"\b[A-Z]\w*(?:Error|Exception|Interrupt)\b: *\S")
PREFIX = re.compile(r"^(?:\(\w+[^)]*\) )?(?:(?:INFO|WARNING|ERROR|CRITICAL) [\d:. -]+\[[^\]]*\] )?")
END = serve_guard.GRACE + 3 * serve_guard.TIDY  # seconds after which a guard that has not ended is hung itself


class ServerProcess:
    """A running command, in a session of its own. It ends when this process does, in whatever way that ends.

    Args:
        command: argument list; no shell sees it.
        environment: all of it.
        log: what it prints is appended to this file.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
        self.log = log
        guard = [sys.executable, "-I", serve_guard.__file__]
        with log.open("ab") as out:  # descriptors are closed on exec, the guard's input among them
            self.guard = subprocess.Popen(
                [*guard, *command],
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=out,
                env=dict(environment),
                start_new_session=True,
            )

    @property
    def ended(self) -> bool:
        """Whether the server has ended, by itself or killed."""
        return self.guard.poll() is not None

    @property
    def how(self) -> str:
        """How it ended, and the last telling line that it printed."""
        code = self.guard.poll()
        if code is None:
            end = "still runs"
        elif code < 0 or code > 128:
            number = -code if code < 0 else 256 - code
            end = f"was killed by {signal.Signals(number).name}" if number in list(signal.Signals) else "was killed"
        else:
            end = f"ended with code {code}"
        words = "" if "SIGKILL" in end else last_words(self.log)  # nobody can say anything of that one
        return f"{end}; its last words: {words}" if words else end

    def close(self) -> None:
        """End it and everything it started, within seconds."""
        assert self.guard.stdin is not None
        with contextlib.suppress(OSError):
            self.guard.stdin.close()
        try:
            self.guard.wait(END)
        except subprocess.TimeoutExpired:  # stopped, or swapped out
            self.guard.kill()
            self.guard.wait(END)
        serve_guard.end_session(self.guard.pid)  # a guard that was killed has ended nobody


def last_words(log: Path, most: int = 300) -> str:
    """The last line of a log that names an error, else the last line of all."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 2**18))
            lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    # what follows from an error elsewhere says so, and where to look: the error itself is more telling
    telling = [line for line in lines if TELLING.search(line) and "root cause" not in line]
    line = (telling or lines or [""])[-1]
    return PREFIX.sub("", line)[:most]


def take_port(host: str, port: int) -> int:
    """A port that nobody listens on: this one, or a free one for 0.

    Raises:
        EnvironmentLacks: it is taken, or there is no such address here.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((host, port))
            return int(probe.getsockname()[1])
    except OSError as problem:
        raise EnvironmentLacks(
            f"a server cannot listen on {host}, port {port}: {problem.strerror}; set vllm.port to another one, or to 0 "
            "for a free one"
        ) from problem
