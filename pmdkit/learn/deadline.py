"""A deadline for code of somebody else in this process. A process of its own with limits of its own: limited.py."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooLong(BaseException):
    """The time is up. No Exception: an answer that catches those must not catch this."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TooLong in the block after so many seconds of wall time.

    Works in the main thread, where notebooks and the command line run their code; elsewhere, and on systems without
    SIGALRM, there is no deadline. A call into compiled code is interrupted when it returns.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again each second: a bare `except:` may swallow the first
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
