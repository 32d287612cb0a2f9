"""Calls that may fail or hang, many at once: each in a thread of its own, with a deadline and retries.

Threads, not processes, because these calls wait for a sandbox or a server, and a process would import again what the
user's file needs. One that hangs is left behind: a loop in Python is interrupted, a wait goes on, and since threads are
daemons the process ends without it.
"""

import ctypes
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any

MOST_HANGING = 1000
"Hanging calls with which no others are made: each keeps a thread, and containers often allow a few thousand."


class CallFailed(Exception):
    """The failure of the last attempt, such as "raised TimeoutError: the server is busy"."""


@dataclass
class ConcurrentCalls:
    """Makes calls at the same time.

    Attributes:
        seconds: deadline of an attempt, by the clock.
        retries: attempts after the first one.
        concurrency: largest number of calls that run at once, not counting abandoned calls.
        hanging: abandoned calls that still run.
    """

    seconds: float
    retries: int
    concurrency: int
    hanging: list[Thread] = field(default_factory=list, init=False)

    def run(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """The result of each call, in order, or a CallFailed."""
        results: list[Any] = [None] * len(calls)
        done: SimpleQueue[tuple[tuple[int, int], Any]] = SimpleQueue()
        waiting = deque((place, 0) for place in range(len(calls)))  # and the number of the attempt
        running: dict[tuple[int, int], tuple[Thread, float]] = {}  # in the order of their deadlines
        self.hanging = [thread for thread in self.hanging if thread.is_alive()]
        while waiting or running:
            while waiting and len(running) < self.concurrency and len(self.hanging) < MOST_HANGING:
                key = waiting.popleft()
                thread = Thread(target=attempt, args=(calls[key[0]], key, done), daemon=True)
                thread.start()
                running[key] = thread, time.monotonic() + self.seconds
            if not running:
                for place, _ in waiting:
                    results[place] = CallFailed(f"was not called: {len(self.hanging)} earlier calls still hang")
                break
            first, (thread, deadline) = next(iter(running.items()))
            try:
                key, result = done.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                key, result = first, CallFailed(f"did not answer within {self.seconds:g} s")
                self.hanging.append(thread)
                ctypes.pythonapi.PyThreadState_SetAsyncExc(
                    ctypes.c_ulong(thread.ident or 0), ctypes.py_object(SystemExit)
                )
            if running.pop(key, None) is None:  # an answer after its deadline
                continue
            place, number = key
            if isinstance(result, CallFailed) and number < self.retries:
                waiting.append((place, number + 1))
            else:
                results[place] = result
        return results


def attempt(call: Callable[[], Any], key: tuple[int, int], done: "SimpleQueue[tuple[tuple[int, int], Any]]") -> None:
    """Make the call in a thread, and put its result or its failure into the queue."""
    try:
        done.put((key, call()))
    except CallFailed as failed:
        done.put((key, failed))
    except BaseException as error:  # SystemExit is an answer like any other
        done.put((key, CallFailed(f"raised {type(error).__name__}: {str(error)[:200]}")))
