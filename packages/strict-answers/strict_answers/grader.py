"""`verify` for one response, `Grader` for many, in order: rules decide nearly all, a pool of workers compares the rest.

Responses may be submitted while others are still being generated: a thread judges them ahead, and `grade` collects the
verdicts. A journal keeps the workers' verdicts for a resumed run.
"""

import atexit
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from strict_answers.journal import VerdictJournal, key_of
from strict_answers.pool import Pool
from strict_answers.process import Judge, Message, WorkerFailed
from strict_answers.rules import Pending, grade_by_rules
from strict_answers.structure import Part
from strict_answers.verdict import Item, Verdict, describe, unscored
from strict_answers.version import __version__

AHEAD = 2**16
"Maximum number of responses judged ahead and not yet collected; responses of a lost engine never are."
MAX_GOLDS = 2**16
"Golds whose reading is remembered."
PATIENCE = 10
"Wall-clock seconds per second of processor time before a comparison counts as stuck: a crowded machine is slow."


@dataclass(frozen=True)
class WorkerRequest:
    """The request to a worker, and the extracted answer for the verdict."""

    message: dict[str, Any]
    extracted: str | None

    @property
    def gold(self) -> tuple[Part, ...] | None:
        """The parts of the gold that math-verify will parse; None in a request of a grader of your own."""
        gold = self.message.get("gold")
        return gold if isinstance(gold, tuple) else None


class Grader:
    """Judges responses; safe to call from any thread, one batch at a time.

    A response submitted ahead of `grade` gets the same verdict, only earlier. Only verdicts are kept: a response on
    which a worker failed is judged again by `grade`, which gives the second chance and writes the journal.

    A grader of your own is a subclass: it gives `__init__` a `judge` of its own, and overrides `prepare`, `key` and
    `parse`.

    Args:
        boxed: take the answer from the last \\boxed{} instead of the last Answer: line.
        workers: maximum number of processes; they start when first needed.
        seconds: limit per answer: processor time of the comparison, so that the load of the machine changes no
            verdict, with ten times as much wall-clock time. An answer over it is unscored at once; other failures are
            retried once, alone. Costly answers are rejected unparsed, so that a comparison takes milliseconds; 0.8 s
            keeps even those that run over below a second.
        memory_mb: MiB that an answer may make a worker allocate.
        journal: a JSONL file that stores the verdicts of workers for resumed runs.
        most_unscored: share of a batch that may be unscored (one response always may). Above it the verifier itself
            has failed: its unscored verdicts are not written down, and a run resumed after a repair asks again.
        judge: the judge that workers load, and its limits; by default math-verify with the limits above.
        patience: wall-clock seconds per request; by default ten times the judge's limit.

    Raises:
        ValueError: workers, seconds or memory_mb is too small.
        JournalDamaged: the file is not a verdict journal.
    """

    def __init__(
        self,
        *,
        boxed: bool = False,
        workers: int = 1,
        seconds: float = 0.8,
        memory_mb: int = 1024,
        journal: str | Path | None = None,
        most_unscored: float = 1.0,
        judge: Judge | None = None,
        patience: float | None = None,
    ) -> None:
        if workers < 1 or seconds <= 0 or memory_mb < 1:
            raise ValueError(
                f"workers = {workers}, seconds = {seconds}, memory_mb = {memory_mb}; "
                "expected at least 1, above 0, at least 1"
            )
        self.boxed, self.workers = boxed, workers
        versions = [f"{name} {metadata.version(name)}" for name in ("math-verify", "sympy")]
        self.identity = f"math {__version__} boxed={boxed} {versions}"  # part of the keys of a journal
        judge = judge or Judge("strict_answers.symbolic:load", None, seconds, memory_mb)
        self.pool = Pool(judge, patience or PATIENCE * seconds)
        self.journal = None if journal is None else VerdictJournal(journal)
        self.most_unscored = most_unscored
        self.lock = threading.RLock()
        self.waiting: deque[Callable[[], Item]] = deque()  # submitted, not yet judged
        self.arrived = threading.Event()
        self.thread: threading.Thread | None = None  # judges ahead; never ends early, since its workers end with it
        self.ahead_ok = True  # workers could start at the last attempt to judge ahead
        self.prepared: dict[Item, Verdict | WorkerRequest] = {}
        self.judged: dict[str, Verdict] = {}  # verdicts of workers, for requests not yet collected
        self.golds: dict[tuple[Part, ...], str] = {}  # read by a worker: "", or why it cannot be read

    def prepare(self, item: Item) -> Verdict | WorkerRequest:
        """The verdict if the rules give one, else the request for a worker."""
        graded = grade_by_rules(
            item.response, item.gold, boxed=self.boxed, truncated=item.truncated, problem=item.problem
        )
        if isinstance(graded, Pending):
            return WorkerRequest({"members": graded.members, "gold": graded.gold}, graded.extracted)
        return graded

    def prepare_or_unscored(self, item: Item) -> Verdict | WorkerRequest:
        """`prepare`; an unscored verdict if it raises, because one answer must not end a run that judges many."""
        try:
            return self.prepare(item)
        except Exception as error:  # RecursionError and MemoryError too
            return unscored(None, f"the verifier failed on this answer: {describe(error)}")

    def key(self, item: Item) -> str:
        """The key of a worker's verdict."""
        return key_of(self.identity, item.gold, item.response, *([] if item.problem is None else [item.problem]))

    def parse(self, request: WorkerRequest, message: Message) -> Verdict:
        """The verdict in a reply; WorkerFailed if there is none, since something else may have written to the pipe."""
        if "error" in message:
            return unscored(request.extracted, message["error"])
        correct, reason = message.get("correct"), message.get("reason")
        if not isinstance(correct, bool) or not isinstance(reason, str):
            raise WorkerFailed(f"the worker sent nonsense: a verdict of {str(correct)[:80]}")
        return Verdict(correct, request.extracted, "symbolic", reason, float(correct))

    def probe(self) -> Verdict:
        """Ask a worker whether 34 is 34: correct is True if the pool works, None with the reason if it does not."""
        with self.lock:
            request = WorkerRequest({"members": [[["", "34"]]], "gold": [["", "34"]]}, "34")
            verdict = self.ask_workers({"probe": request})[0]["probe"]
        return unscored("34", "34 is not 34: broken") if verdict.correct is False else verdict

    def submit(self, item: Callable[[], Item]) -> None:
        """Judge an item ahead, in a thread that also makes it from tokens; `grade` collects its verdict later."""
        self.waiting.append(item)
        if self.thread is None or not self.thread.is_alive():  # for example in a fork
            self.thread = threading.Thread(target=self.work_ahead, name="verifier", daemon=True)
            self.thread.start()
        self.arrived.set()

    def work_ahead(self) -> None:
        """Run in the thread: judge a few items at a time, so that `grade` and `close` do not wait long."""
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
                make_item = self.waiting.popleft()
            except IndexError:  # `close` has dropped them
                break
            try:
                item = make_item()
            except Exception:  # the caller makes this item again for `grade`, and meets the error there
                continue
            if item in self.prepared:
                continue
            if len(self.prepared) >= AHEAD:
                self.prepared.clear()
                self.judged.clear()
            prepared = self.prepared[item] = self.prepare_or_unscored(item)
            if isinstance(prepared, WorkerRequest):
                key = self.key(item)
                if key not in self.judged and not (self.journal and self.journal.get(key)):
                    requests[key] = prepared
        if requests and self.ahead_ok:
            found, failed = self.run_requests(requests, self.workers)
            self.judged |= found
            self.ahead_ok = len(requests) == len(failed) + len(found)

    def grade(self, items: Sequence[Item]) -> list[Verdict]:
        """One verdict per item, in order. No text in an item raises an error or changes the verdict on another item."""
        with self.lock:
            self.judge_ahead(len(self.waiting))  # all at once; after this the thread finds nothing to do
            prepared = {
                item: self.prepared.get(item) or self.prepare_or_unscored(item) for item in dict.fromkeys(items)
            }
            for item in prepared:
                self.prepared.pop(item, None)
            verdicts = {item: found for item, found in prepared.items() if isinstance(found, Verdict)}
            asked = {item: found for item, found in prepared.items() if isinstance(found, WorkerRequest)}
            keys = {item: self.key(item) for item in asked}
            before = self.journal.verdicts if self.journal else {}
            requests = {keys[item]: request for item, request in asked.items() if keys[item] not in before}
            judged = {key: self.judged.pop(key) for key in requests if key in self.judged}
            from_workers, left = set(judged), {key: requests[key] for key in requests if key not in judged}
            if left:
                found_now, answered = self.ask_workers(left)
                judged, from_workers = judged | found_now, from_workers | answered
            verdicts |= {item: before.get(key) or judged[key] for item, key in keys.items()}
            found = [verdicts[item] for item in items]
            outage = sum(not verdict.scored for verdict in found) > max(1, self.most_unscored * len(found))
            if self.journal is not None and requests:  # before anyone sees them; nothing if no worker could start
                kept = [key for key in requests if key in from_workers and (judged[key].scored or not outage)]
                self.journal.append({key: judged[key] for key in kept})
            self.ahead_ok = True
            return found

    def ask_workers(self, requests: dict[str, WorkerRequest]) -> tuple[dict[str, Verdict], set[str]]:
        """(verdicts, keys of the verdicts from a worker). Failed requests get a second chance, alone."""
        verdicts, failed = self.run_requests(requests, self.workers)
        for key in failed:
            found, again = self.run_requests({key: requests[key]}, 1)
            verdicts |= found
            for reason in again.values():
                verdicts[key] = unscored(requests[key].extracted, f"{reason}, twice")
        from_workers = set(verdicts)
        for key in requests.keys() - verdicts.keys():
            verdicts[key] = unscored(requests[key].extracted, self.pool.outage)
        return verdicts, from_workers

    def run_requests(
        self, requests: dict[str, WorkerRequest], workers: int
    ) -> tuple[dict[str, Verdict], dict[str, str]]:
        """(verdicts, reasons why the workers of the other requests failed).

        A gold that no worker has read yet is tried with one answer before the others: one that cannot be read costs
        two workers once, however many answers there are.
        """
        verdicts: dict[str, Verdict] = {}
        failed: dict[str, str] = {}
        new: set[tuple[Part, ...]] = set()
        first: dict[str, WorkerRequest] = {}
        later: dict[str, WorkerRequest] = {}
        for key, request in requests.items():
            (later if request.gold in new else first)[key] = request
            if request.gold is not None and request.gold not in self.golds:
                new.add(request.gold)
        for batch in (first, later):
            reasons = {key: self.golds.get(request.gold or (), "") for key, request in batch.items()}
            verdicts |= {key: unscored(batch[key].extracted, reason) for key, reason in reasons.items() if reason}
            messages = {key: request.message for key, request in batch.items() if not reasons[key]}
            outcome = self.pool.run(messages, lambda key, message: self.parse_reply(requests[key], message), workers)
            over = {key: unscored(batch[key].extracted, reason) for key, reason in outcome.over.items()}
            verdicts |= outcome.replies | over
            failed |= outcome.failed
            if len(self.golds) > MAX_GOLDS:
                self.golds.clear()
            self.golds |= {gold: "" for key in outcome.replies if (gold := batch[key].gold) is not None}
            for key in (*outcome.over, *outcome.failed):
                self.try_gold(batch[key].gold)
        return verdicts, failed

    def parse_reply(self, request: WorkerRequest, message: Message) -> Verdict:
        """`parse`, where any error means that the reply is nonsense."""
        try:
            return self.parse(request, message)
        except WorkerFailed:
            raise
        except Exception as error:
            raise WorkerFailed(f"the reply cannot be read: {describe(error)}") from error

    def try_gold(self, gold: tuple[Part, ...] | None) -> None:
        """After a comparison that ended its worker, compare each piece of the gold with 0: is the gold the cause?"""
        if gold is None or gold in self.golds:
            return
        pieces = {piece: {"members": [[["", "0"]]], "gold": [["", piece]]} for part in gold for piece in part[1:]}
        outcome = self.pool.run(pieces, lambda _, message: message, 1)
        if reasons := [*outcome.over.values(), *outcome.failed.values()]:
            self.golds[gold] = f"the gold answer cannot be read: {reasons[0]}"
        elif len(outcome.replies) == len(pieces):  # else no worker could start, and nothing is known
            self.golds[gold] = ""

    def close(self) -> None:
        """End all workers, at once; a later call starts new ones."""
        self.thread = None
        self.waiting.clear()
        self.arrived.set()
        with self.lock:
            self.prepared.clear()
            self.judged.clear()
            self.pool.close()

    def __enter__(self) -> "Grader":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


LOCK = threading.Lock()
GRADERS: dict[bool, Grader] = {}
"The graders behind `verify`, by place of the answer: made on first use and closed when the process ends."


def verify(
    response: str, gold: str, *, boxed: bool = False, truncated: bool = False, problem: str | None = None
) -> Verdict:
    r"""Whether the answer that `response` ends with equals `gold`; never raises for any text, from any thread.

    The answer is what follows the last `Answer:`, upper or lower case. What counts as equal is in `conventions.TABLE`.

    Args:
        response: what a model wrote, without the prompt.
        gold: the answer of the data set, such as "34" or "\\frac{1}{2}".
        boxed: the answer is in the last \boxed{} instead.
        truncated: the length limit cut the response off; it counts as wrong, whatever it says.
        problem: the question, if available: its words may appear around a value, and "about 34" counts if it asks to
            round.

    Returns:
        A verdict whose `correct` is None if the comparison ran over its time or memory, or if the verifier's own code
        raised: unscored, never wrong.
    """
    with LOCK:
        if boxed not in GRADERS:
            GRADERS[boxed] = Grader(boxed=boxed)
            atexit.register(GRADERS[boxed].close)
    item = Item(response, gold, truncated, problem)
    prepared = GRADERS[boxed].prepare_or_unscored(item)  # waits for no other thread's comparison
    return prepared if isinstance(prepared, Verdict) else GRADERS[boxed].grade([item])[0]
