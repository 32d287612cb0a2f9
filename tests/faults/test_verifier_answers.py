"""Hostile answers to the verifier, made by hand and by chance, and honest counterparts: each is judged as decided.

Fed with what is nearly mathematics, nothing raises, is slow, leaks, or is decided in two ways.
PMDKIT_FAULTS_SCALE=50 makes it 100,000 answers, and `-s` shows the times. Times are processor time, so that other work
on the machine does not count.
"""

import gc
import itertools
import os
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit.envs.reward_functions import FunctionGrader
from strict_answers import Grader, Item, audit
from strict_answers.rules import Pending, grade_by_rules
from strict_answers.verdict import printable

from .attacks import PARSERLESS, answers, attacks
from .harness import scaled

ATTACKS = attacks()


@pytest.fixture(scope="module")
def judged():
    found = {}
    for boxed in (False, True):
        rows = [row for row in ATTACKS if row.boxed == boxed]
        with Grader(boxed=boxed) as grader:
            found |= dict(zip(rows, grader.grade([Item(row.response, row.gold) for row in rows]), strict=True))
    return found


def test_the_corpus_is_large_and_has_no_row_twice():
    kinds = Counter(row.kind for row in ATTACKS)
    assert len(ATTACKS) - kinds["honest"] >= 500
    assert kinds["honest"] >= 150
    assert len({(row.gold, row.response, row.boxed) for row in ATTACKS}) == len(ATTACKS)


@pytest.mark.parametrize("kind", sorted({row.kind for row in ATTACKS}))
def test_as_decided(judged, kind):
    missed = [
        f"{row.response[:80]!a} for {row.gold!a} is {verdict.correct} by {verdict.path} ({verdict.reason}); "
        f"decided {row.correct}: {row.why}"
        for row, verdict in judged.items()
        if row.kind == kind and verdict.correct is not row.correct
    ]
    assert not missed, "\n".join(missed)


def test_rules_decide_what_the_parser_shall_not_see():
    asked = [
        row
        for row in ATTACKS
        if row.kind in PARSERLESS and not row.correct
        if isinstance(grade_by_rules(row.response, row.gold, boxed=row.boxed), Pending)
    ]
    assert not asked


def test_what_a_verdict_says_is_safe_in_logs_and_records(judged):
    """No escape, no newline, no character that turns text around, and not long, wherever a verdict is written down."""
    for verdict in judged.values():
        for text in (verdict.reason, verdict.extracted or ""):
            assert text.isprintable(), ascii(text)
            assert len(text) <= 1003
    rows = audit([Item(row.response, row.gold) for row in judged], list(judged.values()), examples=1000)
    texts = [text for row in rows for example in row["examples"] for text in example.values()]
    assert all(text.isascii() and text.isprintable() for text in texts)


def test_a_failing_grader_of_the_user_cannot_pass_escapes_on(tmp_path):
    (tmp_path / "mine.py").write_text("def grade(response, gold):\n    raise KeyError(response)")
    hostile = "\x1b[2J\r\nall right\u202e" + "x" * 5000
    with FunctionGrader(f"{tmp_path / 'mine.py'}:grade", seconds=5) as grader:
        verdict = grader.grade([Item(hostile, "34")])[0]
    assert verdict.correct is None
    assert verdict.reason.isprintable()
    assert "KeyError" in verdict.reason
    assert len(verdict.reason) < 300


def test_printable():
    assert printable("a\x1b\n\ud800\u202eé", 100) == "a\\x1b\\n\\ud800\\u202eé"
    assert printable("y" * 11, 10) == "y" * 10 + "..."
    assert printable("\x00" * 10, 10) == "\\x00\\x00\\x" + "..."


# By chance.

COUNT = scaled(2000)
SEED = 9
MOST = 2.0
"Seconds of the processor that a verdict may take; a worker ends itself after 0.8."
TIMED_OUT = 1 / 400
"Share of answers that may pass the guard and then run over their time."
PAGE = os.sysconf("SC_PAGE_SIZE")


class Judged(NamedTuple):
    """What was decided, by which path, in how much processor time of the worker and of the caller."""

    correct: bool | None
    path: str
    worker: float
    caller: float


def clock(pid: int) -> float:
    """Processor seconds of another process, to the microsecond (Linux numbers such clocks by process)."""
    return time.clock_gettime(~pid << 3 | 2)


def resident() -> float:
    """MiB of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20


def children() -> set[int]:
    """Processes that this one started and that are still there."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().rpartition(")")
        except OSError:  # it ended between the listing and the reading
            continue
        if int(rest.split()[1]) == os.getpid():
            found.add(int(name.split()[0]))
    return found


def judge(grader: Grader, gold: str, response: str) -> Judged:
    """One verdict and what it cost; a worker that was killed has cost all it may."""
    if not any(process.ready and process.alive for process in grader.pool.processes):
        grader.probe()  # a start of a process is no part of a verdict
    worker = grader.pool.processes[0]
    before, began = clock(worker.popen.pid), time.process_time()
    verdict = grader.grade([Item(response, gold)])[0]
    spent = time.process_time() - began
    kept = worker in grader.pool.processes
    cost = clock(worker.popen.pid) - before if kept else grader.seconds * (verdict.correct is None)
    return Judged(verdict.correct, verdict.path, cost, spent)


def judge_all(rows: list[tuple[str, str, str]]) -> list[Judged]:
    """All of them, one at a time, by a pool of its own."""
    with Grader() as grader:
        return [judge(grader, gold, response) for _, gold, response in rows]


@pytest.fixture(scope="module")
def rows():
    return list(itertools.islice(answers(SEED), COUNT))


@pytest.fixture(scope="module")
def run(rows):
    """(judged, resident memory after a quarter and at the end, children left over)."""
    before = children()
    quarter = len(rows) // 4
    with Grader() as grader:
        judged = [judge(grader, gold, response) for _, gold, response in rows[:quarter]]
        gc.collect()
        early = resident()
        judged += [judge(grader, gold, response) for _, gold, response in rows[quarter:]]
        gc.collect()
        late = resident()
    return judged, early, late, children() - before


@pytest.mark.nightly
def test_no_verdict_takes_two_seconds(rows, run):
    judged = run[0]
    worst = sorted(zip((one.worker + one.caller for one in judged), rows, strict=True), reverse=True)[:3]
    print(report(judged))
    assert worst[0][0] <= MOST, worst
    late = [row for row, one in zip(rows, judged, strict=True) if one.path == "timeout"]
    assert len(late) <= TIMED_OUT * len(rows), late


@pytest.mark.nightly
def test_the_guard_is_no_sieve_and_no_wall(run):
    """Some answers are refused, some reach the parser, some are right: otherwise nothing is tested here."""
    paths = Counter(one.path for one in run[0])
    assert paths["rejected"] > 0.3 * COUNT
    assert paths["symbolic"] > 0.1 * COUNT
    assert any(one.correct for one in run[0])


@pytest.mark.nightly
def test_no_process_is_left_and_the_caller_does_not_grow(run):
    _, early, late, left = run
    assert not left
    assert late - early <= 20, f"{early:.0f} MiB after a quarter, {late:.0f} MiB at the end"


@pytest.mark.nightly
def test_the_same_verdict_in_another_order_and_process(rows, run):
    """Caches of the worker, its age and what it judged before change no verdict. At the limit of time one may waver."""
    again = judge_all(rows[::-1])[::-1]
    differ = [
        (row, one, two)
        for row, one, two in zip(rows, run[0], again, strict=True)
        if (one.correct, one.path) != (two.correct, two.path)
    ]
    assert not [case for case in differ if None not in (case[1].correct, case[2].correct)], differ
    assert len(differ) <= TIMED_OUT * len(rows), differ


@settings(max_examples=scaled(150), deadline=None, derandomize=True)
@given(text=st.text(max_size=300), gold=st.text(max_size=40), boxed=st.booleans())
def test_no_text_raises_or_wears_a_worker_out(shared, text, gold, boxed):
    grader = shared[boxed]
    judged = judge(grader, gold, rf"\boxed{{{text}}}" if boxed else f"Answer: {text}")
    assert judged.worker + judged.caller <= MOST


@pytest.fixture(scope="module")
def shared():
    with Grader() as line, Grader(boxed=True) as box:
        yield {False: line, True: box}


@pytest.mark.parametrize("boxed", [False, True])
def test_a_megabyte_is_refused_in_milliseconds(boxed):
    """Ten milliseconds for a megabyte. Here four of them in thirty, which leaves room for a slow machine."""
    size = 4_000_000
    slow = {}
    for unit in (
        "a",
        "{",
        "}",
        "{}",
        "\\",
        "\\boxed{",
        "\\boxed{34}",
        "Answer: ",
        "answer   ",
        "9",
        "$",
        "\\[",
        "34=",
        "𝟑",
    ):
        body = (unit * (size // len(unit) + 1))[:size]
        for text in (body, "Answer: " + body, body + "\nAnswer: 34", rf"\boxed{{{body}}}", body + r"\boxed{34}"):
            times = []
            for _ in range(5):
                began = time.process_time()
                grade_by_rules(text, r"\sqrt{2}", boxed=boxed)
                times.append(time.process_time() - began)
                if times[-1] < 0.01:
                    break
            slow[unit, text[:12]] = min(times)
    assert max(slow.values()) < 0.3, sorted(slow.items(), key=lambda pair: -pair[1])[:5]


def report(judged: list[Judged]) -> str:
    """Shares and times for a person."""
    paths = Counter(one.path for one in judged)
    times = sorted(one.worker for one in judged if one.path in ("symbolic", "timeout")) or [0.0]
    at = {q: times[min(len(times) - 1, int(q * len(times)))] * 1000 for q in (0.5, 0.9, 0.99, 0.999, 1)}
    return (
        f"\n{len(judged)} answers; "
        + ", ".join(f"{path} {count / len(judged):.4f} ({count})" for path, count in paths.most_common())
        + f"; right {sum(one.correct is True for one in judged)}"
        + f"\nparsed, ms of worker: {', '.join(f'{q:g}: {value:.1f}' for q, value in at.items())}"
        + f"\ncaller, ms: most {max(one.caller for one in judged) * 1000:.1f}, "
        + f"mean {1000 * sum(one.caller for one in judged) / len(judged):.3f}; "
        + f"sum of worker {sum(times):.1f} s"
    )
