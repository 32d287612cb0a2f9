"""Signals and closed pipes around a whole command.

`pmdkit.fit` handles SIGTERM and SIGINT within its steps. `command_context` handles them before the first step and
after the last, handles SIGHUP, and keeps a run alive when the reader of its output goes away.
"""

import contextlib
import errno
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from pmdkit.child_processes import handling
from pmdkit.errors import Stopped

GONE = (errno.EPIPE, errno.EIO)  # errors if the reader closed the pipe; if the terminal hung up
OUTSIDE = "stopped outside a step, and nothing that was saved is lost; run again with --resume"


def print_error(sentence: str) -> None:
    """Print one line on stderr."""
    print(f"pmdkit: error: {sentence}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def command_context(report: Callable[[str], None] = print_error) -> Iterator[None]:
    """Handle signals and closed streams around a whole command; `report` gets the sentence of a stop request that ends
    it while no other handler is installed."""
    tolerate_closed_streams()

    def leave(number: int, frame: Any) -> None:
        report(OUTSIDE)
        os._exit(Stopped.exit_code)  # an exception could be swallowed by a try block during an import

    def hang_up(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_IGN)  # a closing terminal sends it twice: from the kernel, then from the shell
        signal.raise_signal(signal.SIGTERM)

    closing = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []  # not on Windows
    try:
        with handling(leave), handling(hang_up, closing):
            yield
    except KeyboardInterrupt as second:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)  # exiting as fast as possible; a third request must do no harm
        raise Stopped("interrupted; the last checkpoint is intact: run again with --resume") from second


class PipeTolerantFile(io.FileIO):
    """A descriptor whose reader may go away: undeliverable output is dropped. The run's folder has it all."""

    def write(self, data: Any, /) -> int:
        """Write as many bytes as the descriptor takes, or discard all if the reader is gone."""
        try:
            return super().write(data)
        except OSError as problem:
            if problem.errno not in GONE:
                raise
            return memoryview(data).nbytes


def tolerate_closed_streams() -> None:
    """Let stdout and stderr outlive their readers. A closed descriptor would be reused by the next file opened."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free descriptor, which is this one
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None or stream is getattr(sys, f"__{name}__"):  # else a notebook or a test reads it
            raw = PipeTolerantFile(descriptor, "w", closefd=False)
            encoding, live = getattr(stream, "encoding", "utf-8"), raw.isatty() or descriptor == 2
            made = io.TextIOWrapper(io.BufferedWriter(raw), encoding, errors="backslashreplace", line_buffering=live)
            setattr(sys, name, made)
