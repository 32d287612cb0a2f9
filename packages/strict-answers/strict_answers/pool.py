"""A pool of workers that may hang, grow or die: requests in, one outcome for each, whatever happens to a worker."""

import os
import select
import time
from collections import deque
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from strict_answers.process import CannotLoad, Judge, Message, OverTime, WorkerFailed, WorkerProcess

CALLS = 1000
"Requests after which a worker is replaced: sympy caches grow, and a grader may leak."
Reply = TypeVar("Reply")
# File descriptor of a worker's replies -> worker, key of its request, deadline in monotonic seconds.
Running = dict[int, tuple[WorkerProcess, str, float]]


@dataclass
class Outcome(Generic[Reply]):
    """Outcomes of requests by key. Each key is in exactly one field, or in none if no worker could start.

    Attributes:
        replies: the parsed replies.
        over: reasons for requests that ended their worker by processor time, which would happen again.
        failed: reasons for requests that lost their worker in another way; a second try may succeed.
    """

    replies: dict[str, Reply] = field(default_factory=dict)
    over: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


class Pool:
    """Workers that share a judge, started when they are first needed.

    Deadlines are enforced here with `select`, so it works in any thread; one thread at a time may use it.

    Args:
        judge: the judge that the workers load.
        patience: wall-clock seconds per request, after which its worker is killed.

    Attributes:
        outage: why no worker could start at the last attempt.
    """

    def __init__(self, judge: Judge, patience: float) -> None:
        self.judge = judge
        self.patience = patience
        self.processes: list[WorkerProcess] = []
        self.owner = os.getpid()
        self.outage = "no worker"

    def run(
        self, requests: Mapping[str, Message], parse: Callable[[str, Message], Reply], workers: int
    ) -> Outcome[Reply]:
        """Send requests to up to `workers` processes.

        Args:
            requests: by key.
            parse: makes a result of (key, reply); WorkerFailed means that the reply is nonsense.
        """
        outcome: Outcome[Reply] = Outcome()
        waiting = deque(requests)
        running: Running = {}
        try:
            while waiting or running:
                if waiting:
                    self.ensure(min(workers, len(waiting) + len(running)), running)
                for process in self.processes[:workers]:
                    if waiting and process.replies not in running:
                        key = waiting.popleft()
                        deadline = time.monotonic() + self.patience
                        running[process.replies] = process, key, deadline
                        try:
                            process.send(requests[key], deadline)
                        except WorkerFailed as error:
                            outcome.failed[key] = self.discard(running, process, str(error))
                nearest = min((deadline for *_, deadline in running.values()), default=0.0)
                readable = (
                    select.select(list(running), [], [], max(nearest - time.monotonic(), 0))[0] if running else []
                )
                for process, key, deadline in list(running.values()):
                    try:
                        message = process.receive() if process.replies in readable else None
                        if message is not None and "fatal" in message:
                            raise WorkerFailed(message["fatal"])
                        if message is not None:
                            del running[process.replies]
                            outcome.replies[key] = parse(key, message)
                        elif time.monotonic() >= deadline:
                            raise WorkerFailed(f"no answer within {self.patience:g} s")
                    except OverTime as error:
                        reason = f"{error} of {self.judge.seconds:g} s"
                        outcome.over[key] = self.discard(running, process, reason)
                    except WorkerFailed as error:
                        outcome.failed[key] = self.discard(running, process, str(error))
        except WorkerFailed as error:  # raised by `ensure`: no worker can start
            self.outage = f"the verifier cannot start: {error}"
        finally:
            for process, key, _ in list(running.values()):  # after an interrupt, since late replies would be stale
                outcome.failed[key] = self.discard(running, process, "interrupted")
        return outcome

    def discard(self, running: Running, process: WorkerProcess, reason: str) -> str:
        """Kill a worker, which is replaced when needed, and return the reason."""
        running.pop(process.replies, None)
        self.processes.remove(process)
        process.kill()
        return reason

    def ensure(self, count: int, running: Container[int] = ()) -> None:
        """Make sure that at least `count` workers are alive and ready; replace those that are worn out."""
        if os.getpid() != self.owner:  # a fork: its workers belong to the parent
            self.processes, self.owner = [], os.getpid()
        for process in list(self.processes):
            if process.replies not in running and (process.calls >= CALLS or process.popen.poll() is not None):
                self.processes.remove(process)
                process.kill()
        for last in (False, True):  # replace one that is killed while it starts, for example when memory is short
            while len(self.processes) < count:
                self.processes.append(WorkerProcess(self.judge))
            for process in list(self.processes):
                try:
                    process.await_ready()
                except WorkerFailed as error:
                    self.processes.remove(process)
                    process.kill()
                    if last or isinstance(error, CannotLoad):
                        raise

    def close(self) -> None:
        """End all workers, at once; a later call starts new ones."""
        if os.getpid() == self.owner:
            for process in self.processes:
                process.kill()
        self.processes = []
