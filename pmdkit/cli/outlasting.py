"""What a command that trains does about the world around it: requests to stop, and streams that nobody reads any more.

`pmdkit.session` answers SIGTERM and SIGINT within its steps. Here is what holds before the first and after the last,
what SIGHUP means, and that a run does not die of a reader that left.
"""

import contextlib
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from pmdkit.errors import Stopped

GONE = (errno.EPIPE, errno.EIO)  # the reader of a pipe left; the terminal hung up
OUTSIDE = "stopped outside of the steps, nothing that was saved is lost; run again with --resume"


def tell(sentence: str) -> None:
    """One line on stderr."""
    print(f"pmdkit: error: {sentence}", file=sys.stderr, flush=True)


@contextlib.contextmanager
def outlasting(say: Callable[[str], None] = tell) -> Iterator[None]:
    """Around a whole command.

    Args:
        say: gets the sentence when a request to stop ends the command between other handlers.
    """
    keep_streams()

    def leave(number: int, frame: Any) -> None:
        say(OUTSIDE)
        os._exit(Stopped.exit_code)  # an exception could be swallowed by an import that tries something

    def hang_up(number: int, frame: Any) -> None:
        signal.signal(number, signal.SIG_IGN)  # a closing terminal says it twice: the kernel, then the shell
        signal.raise_signal(signal.SIGTERM)

    wanted = {signal.SIGTERM: leave, signal.SIGINT: leave}
    if hasattr(signal, "SIGHUP"):  # not on Windows
        wanted[signal.SIGHUP] = hang_up
    if threading.current_thread() is not threading.main_thread():
        wanted = {}
    before = {number: signal.getsignal(number) for number in wanted}
    for number, old in before.items():
        if old is not signal.SIG_IGN:  # nohup, and jobs that a script put into the background
            signal.signal(number, wanted[number])
    try:
        yield
    except KeyboardInterrupt as second:
        before = dict.fromkeys(before, signal.SIG_IGN)  # it leaves as fast as it can; a third request breaks nothing
        raise Stopped("interrupted; the last checkpoint is intact: run again with --resume") from second
    finally:
        for number, old in before.items():
            signal.signal(number, old)


class Lasting(io.FileIO):
    """A descriptor whose reader may leave: what cannot be delivered is dropped. The run's folder has it all."""

    def write(self, data: Any, /) -> int:
        """All bytes that the descriptor takes, or all of them to nowhere."""
        try:
            return super().write(data)
        except OSError as problem:
            if problem.errno not in GONE:
                raise
            return memoryview(data).nbytes


def keep_streams() -> None:
    """Make stdout and stderr outlast their readers. A closed descriptor would be given to the next file opened."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free one, which is this
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name)
        if stream is None or (stream is getattr(sys, f"__{name}__") and not isinstance(stream, Kept)):
            setattr(sys, name, kept(stream, descriptor))


class Kept(io.TextIOWrapper):
    """A stream over a `Lasting` descriptor."""


def kept(stream: TextIO | None, descriptor: int) -> TextIO:
    """The stream of a descriptor, with the encoding of the one it replaces."""
    if stream is not None:
        stream.flush()
    raw = Lasting(descriptor, "w", closefd=False)
    live = raw.isatty() or descriptor == 2
    encoding = stream.encoding if stream is not None else "utf-8"
    return Kept(io.BufferedWriter(raw), encoding=encoding, errors="backslashreplace", line_buffering=live)
