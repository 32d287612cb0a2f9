"""An engine that hangs: calls run in a thread of their own, and a silence that is too long ends the run."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

import torch

from pmdkit.errors import ComponentDied

Result = TypeVar("Result")
POLL = 0.5  # seconds between looks at a call that is silent
PATIENCE = 1.5  # an engine has a deadline of its own, which comes first
CLOSING = 5.0  # seconds that a thread may take to notice that nobody waits for it


class Abandoned(Exception):
    """Nobody waits for the call any more."""


class WatchedCall(Generic[Result]):
    """A call of an engine in a thread, watched for signs of life.

    An engine inside this process that does not come back cannot be stopped, only left behind: the run ends.

    Args:
        call: what the thread runs. It calls `heartbeat` at every sign of life.
        silence: seconds without a sign of life after which the engine counts as hung.
        after: a call that has to end before this one begins.
    """

    def __init__(
        self, call: Callable[["WatchedCall[Result]"], Result], silence: float, after: "WatchedCall | None" = None
    ) -> None:
        self.call = call
        self.silence = silence
        self.after = after
        self.done = threading.Event()
        self.abandoned = False
        self.error: BaseException | None = None
        self.value: Result
        self.device = torch.cuda.current_device() if torch.cuda.is_available() else None
        self.heartbeat()
        threading.Thread(target=self.run, name="rollout", daemon=True).start()

    def run(self) -> None:
        """What the thread does."""
        try:
            if self.device is not None:
                torch.cuda.set_device(self.device)  # each thread has its own
            while self.after is not None and not self.after.done.wait(POLL):
                if self.abandoned:
                    raise Abandoned
            self.after = None
            self.heartbeat()
            self.value = self.call(self)
        except BaseException as problem:  # raised again by `result`
            self.error = problem
        finally:
            self.done.set()

    def heartbeat(self, more: float = 0.0) -> None:
        """The engine is alive; it may be silent for `more` seconds beyond the usual. Abandoned if nobody waits."""
        if self.abandoned:
            raise Abandoned
        self.deadline = time.monotonic() + PATIENCE * self.silence + more

    def result(self) -> Result:
        """What the call returned, or the exception that ended it.

        Raises:
            ComponentDied: the engine has been silent for too long.
        """
        self.heartbeat()  # it may have stood in line until now
        while not self.done.wait(POLL):
            if time.monotonic() > self.deadline:
                raise ComponentDied(
                    f"the engine wrote nothing for {PATIENCE * self.silence:.0f} s and cannot be stopped from here; "
                    "the last checkpoint is intact: go on with --resume, or raise rollout.silence"
                )
        if self.error is not None:
            raise self.error
        return self.value

    def abandon(self) -> bool:
        """Let the call end at its next sign of life; whether it did within seconds. Else it ends with the process."""
        self.abandoned = True
        return self.done.wait(CLOSING)
