"""Graders: judge many responses in order, the costly ones in worker processes that may be killed at any time.

A worker receives requests over a pipe, with deadlines; a journal keeps its verdicts for a resumed run. Responses may be
submitted while others are still being generated: a thread judges them ahead, and `grade` collects the verdicts.
"""

import contextlib
import hashlib
import json
import os
import select
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from pmdkit import foreign
from pmdkit.errors import ComponentDied, ResumeRefused, UsageError
from pmdkit.extras import need
from pmdkit.processes import STARTUP, WorkerFailed, WorkerProcess
from pmdkit.version import __version__
from strict_answers.functions import RewardRow, Takes, adjacent_groups, row_message
from strict_answers.verify import Pending, Verdict, grade_by_rules, printable, wrong_verdict

CALLS = 1000
"Answers after which a worker is replaced: sympy caches grow, and a grader may leak."
REASON = 200
"Maximum length of a reason that comes from other code."
AHEAD = 2**16
"Maximum number of responses judged ahead and not yet collected: those of a lost engine are never collected."
PATIENCE = 10
"Wall-clock seconds per second of processor time before a comparison counts as stuck: a crowded machine is slow."


@dataclass(frozen=True)
class Item:
    """A response to judge against a gold answer.

    Attributes:
        truncated: the length limit cut the response off.
        problem: the question, if available; see `verify`. A user's own grader does not get it.
        row: what a reward function that takes its arguments by name may ask for.
    """

    response: str
    gold: str
    truncated: bool = False
    problem: str | None = None
    row: RewardRow | None = None


@dataclass(frozen=True)
class WorkerRequest:
    """What a worker is asked, and what the verdict will say was extracted."""

    message: dict[str, Any]
    extracted: str | None


class Grader:
    """Judges responses; safe to call from any thread, one batch at a time.

    A response submitted ahead of `grade` gets the same verdict, only earlier. Only verdicts are kept: a response on
    which a worker failed is judged again by `grade`, which gives the second chance and writes the journal.

    Args:
        grade: "math" for `verify`'s rules, or a function of your own such as "my.py:grade", called as
            grade(response, gold) and returning a number from 0 to 1, or with its parameters by name, see
            `functions.OwnReward`.
        boxed: take the answer from the last \\boxed{} instead of the last Answer: line ("math" only).
        workers: maximum number of processes; they start when first needed.
        seconds: limit per answer. For "math" it is processor time of the comparison, so that the load of the machine
            changes no verdict, with ten times as much wall-clock time; for a function of your own, which may wait, it
            is wall-clock time. An answer over its processor time is unscored at once; other failures are retried once,
            alone. Costly answers are rejected unparsed, so that a comparison takes milliseconds; 0.8 s keeps even those
            that run over below a second.
        memory_mb: MiB that an answer may make a worker allocate.
        journal: a JSONL file that stores the verdicts of workers for resumed runs.
        most_unscored: share of a batch that may be unscored (one response always may). Above it the verifier itself
            has failed: its unscored verdicts are not written down, and a run resumed after a repair asks again.
        score_cut_off: call a function of (response, gold) for cut-off responses too, instead of judging them wrong. A
            function that takes its arguments by name gets `cut_off` and is always called.

    Raises:
        UsageError: the file of a user's own grader cannot be loaded (tried in a worker), or a number makes no sense.
        ComponentDied: the worker that tried it was killed, for example by a kernel short of memory.
    """

    def __init__(
        self,
        grade: str = "math",
        *,
        boxed: bool = False,
        workers: int = 1,
        seconds: float = 0.8,
        memory_mb: int = 1024,
        journal: str | Path | None = None,
        most_unscored: float = 1.0,
        score_cut_off: bool = False,
    ) -> None:
        if workers < 1 or seconds <= 0 or memory_mb < 1:
            raise UsageError(
                f"workers = {workers}, seconds = {seconds}, memory_mb = {memory_mb}; "
                "expected at least 1, above 0, at least 1"
            )
        self.own = grade != "math"
        self.grade_path, self.identity = identify(grade, boxed)
        self.boxed, self.workers, self.seconds, self.memory_mb = boxed, workers, seconds, memory_mb
        self.patience = seconds if self.own else PATIENCE * seconds
        self.journal = None if journal is None else VerdictJournal(journal)
        self.most_unscored = most_unscored
        self.score_cut_off = score_cut_off
        self.takes: Takes = "pair"  # what a user's own function is called with; its worker reports it
        self.processes: list[VerifierProcess] = []
        self.owner = os.getpid()
        self.outage = "no worker"  # why none could start at the last attempt
        self.lock = threading.RLock()
        self.waiting: deque[Callable[[], Item]] = deque()  # submitted, not yet judged
        self.arrived = threading.Event()
        self.thread: threading.Thread | None = None  # judges ahead; never ends early, since its workers end with it
        self.ahead_ok = True  # workers could start at the last attempt to judge ahead
        self.prepared: dict[Item, Verdict | WorkerRequest] = {}
        self.judged: dict[str, Verdict] = {}  # by workers, for requests not yet collected
        if self.own:
            try:
                self.ensure(1)
                self.takes = self.processes[0].takes
            except WorkerFailed as error:
                self.close()
                if isinstance(error, CannotLoad):
                    raise UsageError(f"the grader {grade} cannot be used: {error}") from error
                raise ComponentDied(f"the grader {grade} was not ready: {error}; run again, with --resume") from error
        if self.takes == "rows":
            self.patience = 2 * seconds + 1  # an async call ends at its own limit, and the others' values count

    def submit(self, item: Callable[[], Item]) -> None:
        """Judge an item ahead, in a thread that also makes it from tokens; `grade` collects its verdict later."""
        if self.takes == "rows":  # the rest of the group is still being generated
            return
        self.waiting.append(item)
        if self.thread is None or not self.thread.is_alive():  # for example in a fork
            self.thread = threading.Thread(target=self.work_ahead, name="verifier", daemon=True)
            self.thread.start()
        self.arrived.set()

    def work_ahead(self) -> None:
        """The loop of the thread: judge a few items at a time, so that `grade` and `close` do not wait long."""
        mine = threading.current_thread()
        while self.thread is mine:
            self.arrived.wait()
            self.arrived.clear()
            while self.waiting and self.thread is mine:
                with self.lock:
                    self.judge_ahead(2 * self.workers)

    def judge_ahead(self, most: int) -> None:
        """Judge at most `most` of the waiting items."""
        requests: dict[str, WorkerRequest] = {}
        for _ in range(most):
            try:
                item = self.waiting.popleft()()
            except IndexError:  # `close` has dropped them
                break
            if item in self.prepared:
                continue
            if len(self.prepared) >= AHEAD:
                self.prepared.clear()
                self.judged.clear()
            prepared = self.prepared[item] = self.prepare(item)
            if isinstance(prepared, WorkerRequest):
                key = self.key(item)
                if key not in self.judged and not (self.journal and self.journal.get(key)):
                    requests[key] = prepared
        if requests and self.ahead_ok:
            failed = self.run_requests(requests, self.judged, self.workers)
            self.ahead_ok = len(requests) == len(failed) + sum(key in self.judged for key in requests)

    def take_judged(self) -> dict[str, Verdict]:
        """The verdicts that workers gave ahead, by key, for another process's grader; none are kept here."""
        with self.lock:
            self.judge_ahead(len(self.waiting))
            taken, self.judged = self.judged, {}
            self.prepared.clear()
            self.ahead_ok = True
        return taken

    def grade(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item, in order. Whatever an item holds, it raises nothing and changes no other verdict."""
        return self.grade_groups(items) if self.takes == "rows" else self.grade_each(items)

    def grade_groups(self, items: Sequence[Item]) -> list[Verdict]:
        """The same with a function that scores all responses to a prompt together: each group is one item."""
        groups = adjacent_groups([row_of(item).group for item in items])
        whole = [Item(json.dumps([arguments(item) for item in items[group]]), "") for group in groups]
        found: list[Verdict] = []
        for group, verdict in zip(groups, self.grade_each(whole), strict=True):
            count = group.stop - group.start
            if verdict.extracted is None:
                found += [verdict] * count
            else:
                values, reasons = json.loads(verdict.extracted)
                found += [own_verdict(value, reason) for value, reason in zip(values, reasons, strict=True)]
        return found

    def grade_each(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item, where an item may be a whole group."""
        with self.lock:
            self.judge_ahead(len(self.waiting))  # all at once; after this the thread finds nothing to do
            verdicts: list[Verdict | None] = []
            requests: dict[str, WorkerRequest] = {}  # equal items are judged once
            places: dict[str, list[int]] = {}
            for place, item in enumerate(items):
                prepared = self.prepared[item] if item in self.prepared else self.prepare(item)
                if isinstance(prepared, WorkerRequest):
                    key = self.key(item)
                    before = self.journal.get(key) if self.journal else None
                    if before is None:
                        requests[key] = prepared
                        places.setdefault(key, []).append(place)
                    verdicts.append(before)
                else:
                    verdicts.append(prepared)
            for item in items:
                self.prepared.pop(item, None)
            judged = {key: self.judged.pop(key) for key in requests if key in self.judged}
            from_workers, left = set(judged), {key: requests[key] for key in requests if key not in judged}
            if left:
                found_now, answered = self.ask_workers(left)
                judged, from_workers = judged | found_now, from_workers | answered
            for key, verdict in judged.items():
                for place in places[key]:
                    verdicts[place] = verdict
            found = [verdict for verdict in verdicts if verdict is not None]
            outage = sum(not verdict.scored for verdict in found) > max(1, self.most_unscored * len(found))
            if self.journal is not None and requests:  # before anyone sees them; nothing if no worker could start
                kept = [key for key in requests if key in from_workers and (judged[key].scored or not outage)]
                self.journal.append({key: judged[key] for key in kept})
            self.ahead_ok = True
            return found

    def key(self, item: Item) -> str:
        """The key of a worker's verdict."""
        if self.takes == "row":
            return key_of(self.identity, item.gold, item.response, json.dumps(arguments(item)))
        return key_of(self.identity, item.gold, item.response, None if self.own else item.problem)

    def probe(self) -> Verdict:
        """Ask a worker whether 34 is 34: correct is True if the pool works, None with the reason if it does not.

        A function that takes its arguments by name is not called, since there is no row.
        """
        if self.takes != "pair":
            return self.ready()
        request = {"response": "Answer: 34", "gold": "34"} if self.own else {"span": "34", "gold": "34"}
        with self.lock:
            verdict = self.ask_workers({"probe": WorkerRequest(request, "34")})[0]["probe"]
        if verdict.correct is False and not self.own:
            return unscored("34", "34 is not 34: broken")
        return verdict

    def ready(self) -> Verdict:
        """A passing verdict if a worker is ready, else an unscored one with the reason."""
        with self.lock:
            try:
                self.ensure(1)
            except WorkerFailed as error:
                return unscored(None, str(error), "own")
        return own_verdict(1.0)

    def close(self) -> None:
        """End all workers, at once; a later call starts new ones."""
        self.thread = None
        self.waiting.clear()
        self.arrived.set()
        with self.lock:
            self.prepared.clear()
            self.judged.clear()
            if os.getpid() == self.owner:
                for process in self.processes:
                    process.kill()
            self.processes = []

    def __enter__(self) -> "Grader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self, item: Item) -> Verdict | WorkerRequest:
        """The verdict if the rules give one, else the request for a worker."""
        if self.takes == "rows":
            return WorkerRequest({"rows": json.loads(item.response)}, None)
        if self.takes == "row":
            return WorkerRequest({"row": arguments(item)}, None)
        if self.own:
            if item.truncated and not self.score_cut_off:
                return wrong_verdict(None, "rejected", "cut off by the length limit")
            return WorkerRequest({"response": item.response, "gold": item.gold}, None)
        graded = grade_by_rules(
            item.response, item.gold, boxed=self.boxed, truncated=item.truncated, problem=item.problem
        )
        if isinstance(graded, Pending):
            return WorkerRequest({"members": graded.members, "gold": graded.gold}, graded.extracted)
        return graded

    def ask_workers(self, requests: dict[str, WorkerRequest]) -> tuple[dict[str, Verdict], set[str]]:
        """(verdicts, keys of those that came from a worker). Failed requests get a second chance, alone."""
        verdicts: dict[str, Verdict] = {}
        failed = self.run_requests(requests, verdicts, self.workers)
        for key in failed:
            again = self.run_requests({key: requests[key]}, verdicts, 1)
            for reason in again.values():
                verdicts[key] = unscored(requests[key].extracted, f"{reason}, twice")
        from_workers = set(verdicts)
        for key in requests.keys() - verdicts.keys():
            verdicts[key] = unscored(requests[key].extracted, self.outage)
        return verdicts, from_workers

    def run_requests(
        self, requests: dict[str, WorkerRequest], verdicts: dict[str, Verdict], workers: int
    ) -> dict[str, str]:
        """Fill `verdicts` from up to `workers` processes; return why the others failed. Stop if none can start."""
        waiting, failed = deque(requests), dict[str, str]()
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
                            process.send(requests[key].message, deadline)
                        except WorkerFailed as error:
                            failed[key] = self.discard(running, process, str(error))
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
                            verdicts[key] = self.parse_reply(requests[key], message)
                        elif time.monotonic() >= deadline:
                            raise WorkerFailed(f"no answer within {self.patience:g} s")
                    except OverTime as error:
                        reason = f"{self.discard(running, process, str(error))} of {self.seconds:g} s"
                        verdicts[key] = unscored(requests[key].extracted, reason)
                    except WorkerFailed as error:
                        failed[key] = self.discard(running, process, str(error))
        except WorkerFailed as error:  # of `ensure`: no worker can start
            self.outage = f"the verifier cannot start: {error}"
        finally:
            for process, key, _ in list(running.values()):  # after an interrupt: their late replies would be stale
                failed[key] = self.discard(running, process, "interrupted")
        return failed

    def discard(self, running: "Running", process: "VerifierProcess", reason: str) -> str:
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
            if process.replies not in running and (process.calls >= CALLS or not process.alive):
                self.processes.remove(process)
                process.kill()
        for last in (False, True):  # replace one that is killed while it starts, for example when memory is short
            while len(self.processes) < count:
                self.processes.append(VerifierProcess(self.grade_path, self.seconds, self.memory_mb))
            for process in list(self.processes):
                try:
                    process.await_ready()
                except WorkerFailed as error:
                    self.processes.remove(process)
                    process.kill()
                    if last or isinstance(error, CannotLoad):
                        raise

    def parse_reply(self, request: WorkerRequest, message: dict[str, Any]) -> Verdict:
        """The verdict in a reply."""
        if "error" in message:
            return unscored(request.extracted, message["error"], "own" if self.own else "timeout")
        if self.takes == "rows":
            return group_verdict(message, len(request.message["rows"]))
        value = message.get("value" if self.own else "correct")
        in_range = (
            foreign.is_number(value) if self.takes == "row" else isinstance(value, int | float) and 0 <= value <= 1
        )
        if not in_range:  # the worker checks it; a grader may have written to the pipe
            raise WorkerFailed(f"the worker sent nonsense: a verdict of {str(value)[:80]}")
        if self.own:
            return own_verdict(message["value"])
        return Verdict(message["correct"], request.extracted, "symbolic", message["reason"], float(message["correct"]))


class CannotLoad(WorkerFailed):
    """The code that a worker had to load raised an error: another worker would fail too."""


class OverTime(WorkerFailed):
    """The worker ended itself: an answer exceeded its processor time, whatever the load of the machine."""


class VerifierProcess(WorkerProcess):
    """One worker, alive from construction to `kill`.

    Args:
        grade: "math", or a file and a function such as "my.py:grade".
        seconds, memory_mb: limits per answer, enforced by the worker on itself too.
    """

    def __init__(self, grade: str, seconds: float, memory_mb: int) -> None:
        self.calls = 0
        self.ready = False
        self.takes: Takes = "pair"
        options = {"grade": grade, "seconds": seconds, "memory_mb": memory_mb}
        try:
            super().__init__("strict_answers.worker", options)
        except OSError as error:
            raise WorkerFailed(f"a worker cannot be started: {error}") from error

    def await_ready(self) -> None:
        """Wait for the imports; WorkerFailed with the worker's own message if they fail."""
        if self.ready:
            return
        message = self.receive_by(time.monotonic() + STARTUP)
        if message is None:
            raise WorkerFailed(f"a worker was not ready after {STARTUP:.0f} s")
        if "failed" in message:
            raise CannotLoad(message["failed"])
        self.takes = message.get("takes", "pair")
        self.ready = True

    def send(self, message: dict[str, Any], deadline: float) -> None:
        """Send a request and count it."""
        self.calls += 1
        super().send(message, deadline)

    def failure(self) -> WorkerFailed:
        """Why the pipe is closed."""
        if self.wait(1.0) == -signal.SIGPROF:  # a grader that closed the pipe and lives on is killed
            return OverTime("over its limit of processor time")
        return super().failure()


# File descriptor of a worker's replies -> worker, key of its request, deadline in monotonic seconds.
Running = dict[int, tuple[VerifierProcess, str, float]]


class VerdictJournal:
    """Verdicts on disk, so that a resumed run gets the same verdict as before, even if it was a time-out.

    A file of JSON lines, append-only; the first verdict of a key counts.

    An incomplete last line was being written when the process died: it is removed from the file.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.verdicts: dict[str, Verdict] = {}
        if self.path.exists():
            data = self.path.read_bytes()
            whole = data.rfind(b"\n") + 1
            for number, line in enumerate(data[:whole].splitlines(), 1):
                try:
                    row = json.loads(line)
                    self.verdicts.setdefault(row.pop("key"), Verdict(**row))
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    raise ResumeRefused(
                        f"{self.path}, line {number} is not a verdict: {error}; "
                        "verdicts after it may be lost, move the file away to judge again"
                    ) from error
            if whole < len(data):
                os.truncate(self.path, whole)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()

    def get(self, key: str) -> Verdict | None:
        """The earlier verdict of a key, if there is one."""
        return self.verdicts.get(key)

    def append(self, verdicts: dict[str, Verdict]) -> None:
        """Write verdicts and flush them to disk; only then may they be used."""
        lines = [
            json.dumps({"key": key, **asdict(verdict)}, allow_nan=False) + "\n" for key, verdict in verdicts.items()
        ]
        with open(self.path, "ab") as file:
            file.write("".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())
        self.verdicts.update(verdicts)


def identify(grade: str, boxed: bool) -> tuple[str, str]:
    """(what a worker loads, the identity of the judge: another file or version is another judge)."""
    if grade == "math":
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions = [f"{name} {metadata.version(name)}" for name in ("math-verify", "sympy")]
            return grade, f"math {__version__} boxed={boxed} {versions}"
        return grade, f"math {__version__} boxed={boxed}"
    if grade == "reasoning-gym":
        need("reasoning_gym", "the reward reasoning-gym")
        return grade, f"{grade} {metadata.version(grade)}"
    file, _, name = grade.rpartition(":")
    path = Path(file).resolve()
    if not file or not name.isidentifier():
        raise UsageError(f"'{grade}' names no grader; expected \"math\", or a file and a function such as my.py:grade")
    if not path.is_file():
        raise UsageError(f"{file} is not a file; expected a Python file such as my.py, relative to {Path.cwd()}")
    return f"{path}:{name}", f"own {name} {hashlib.sha256(path.read_bytes()).hexdigest()}"


def row_of(item: Item) -> RewardRow:
    """The row of an item, for a function that takes its arguments by name."""
    if item.row is None:
        raise UsageError(
            "a reward function takes its arguments by name, and an item has no row; give Item(..., row=RewardRow(...))"
        )
    return item.row


def arguments(item: Item) -> dict[str, Any]:
    """All arguments that a reward function may take by name, for one item."""
    return row_message(item.response, item.gold, item.truncated, row_of(item))


def own_verdict(value: float | None, reason: str = "") -> Verdict:
    """The verdict of a user's function: a value of 0.5 or more passes."""
    if value is None:
        return unscored(None, reason, "own")
    return Verdict(value >= 0.5, None, "own", f"graded {value:g}", value)


def group_verdict(message: dict[str, Any], count: int) -> Verdict:
    """The values and reasons of a group in one verdict, as JSON in `extracted`; unscored if no response has a value."""
    values, reasons = message.get("values"), message.get("reasons")
    checked = [isinstance(x, list) and len(x) == count for x in (values, reasons)]
    if not all(checked) or not all(value is None or foreign.is_number(value) for value in values or ()):
        raise WorkerFailed(f"the worker sent nonsense: values of {str(values)[:80]}")
    assert values is not None
    assert reasons is not None
    told = json.dumps([values, [printable(str(reason), REASON) for reason in reasons]])
    some = any(value is not None for value in values)
    return Verdict(True if some else None, told, "own", "a group", 1.0 if some else None)


def unscored(extracted: str | None, reason: str, path: Literal["own", "timeout"] = "timeout") -> Verdict:
    """An unscored verdict and the reason, made printable: a grader's error may quote the response."""
    return Verdict(None, extracted, path, printable(reason, REASON), None)


def key_of(identity: str, gold: str, response: str, problem: str | None = None) -> str:
    """The key of a verdict: a hash of the judge, the gold answer, the response and, if it is known, the problem."""
    parts = [identity, gold, response] if problem is None else [identity, gold, response, problem]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
