"""Hostile answers, made by hand and by chance, and honest counterparts: each is judged as decided.

Fed with what is nearly mathematics, nothing raises, is slow, leaks, or is decided in two ways. Times are processor
time, so that other work on the machine does not count. STRICT_ANSWERS_SCALE=50 makes it 100,000 answers by chance.
"""

import gc
import itertools
import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest
from hostile import PARSERLESS, answers, attacks, cut_or_changed, labelled
from hypothesis import given, settings
from hypothesis import strategies as st

from strict_answers import Grader, Item, Verdict, audit, verify
from strict_answers.rules import Pending, grade_by_rules
from strict_answers.verdict import printable

ATTACKS = attacks()


@pytest.fixture(scope="module")
def judged():
    found = {}
    for boxed in (False, True):
        rows = [row for row in ATTACKS if row.boxed == boxed]
        with Grader(boxed=boxed) as grader:
            found |= dict(zip(rows, grader.grade([Item(row.response, row.gold) for row in rows]), strict=True))
    return found


@pytest.mark.slow
def test_every_attack_is_judged_as_decided(judged):
    missed = [
        f"{row.kind}: {row.response[:80]!a} for {row.gold!a} is {verdict.correct} ({verdict.reason}); decided "
        f"{row.correct}: {row.why}"
        for row, verdict in judged.items()
        if verdict.correct is not row.correct
    ]
    assert not missed, "\n".join(missed)
    assert len({(row.gold, row.response, row.boxed) for row in ATTACKS}) == len(ATTACKS) >= 650


def test_rules_decide_what_the_parser_shall_not_see():
    asked = [
        row
        for row in ATTACKS
        if row.kind in PARSERLESS and not row.correct
        if isinstance(grade_by_rules(row.response, row.gold, boxed=row.boxed), Pending)
    ]
    assert not asked


def test_no_limit_holds_that_the_gold_itself_breaks(judge):
    assert judge(r"Answer: 2^{2024}", "2^{2024}")[0] is True
    assert isinstance(grade_by_rules(r"Answer: 4^{1012}", "2^{2024}"), Pending)
    assert isinstance(grade_by_rules(r"Answer: \sum_{k=0}^n k^2", r"\sum_{k=1}^n k^2"), Pending)


@pytest.mark.slow
def test_what_a_verdict_says_is_safe_in_logs_and_records(judged):
    """No escape, no newline, no character that turns text around, and not long, wherever a verdict is written down."""
    for verdict in judged.values():
        for text in (verdict.reason, verdict.extracted or ""):
            assert text.isprintable(), ascii(text)
            assert len(text) <= 1003
    rows = audit([Item(row.response, row.gold) for row in judged], list(judged.values()), examples=1000)
    texts = [text for row in rows for example in row["examples"] for text in example.values()]
    assert all(text.isprintable() for text in texts)
    assert printable("a\x1b\n\ud800\u202eé", 100) == "a\\x1b\\n\\ud800\\u202eé"
    assert printable("y" * 11, 10) == "y" * 10 + "..."


# Nothing raises.


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.text(), st.text(), st.booleans(), st.booleans())
@pytest.mark.slow
def test_no_text_raises(text, gold, boxed, truncated):
    for response in (text, f"Answer: {text}", rf"\boxed{{{text}}}"):
        grade_by_rules(response, gold, boxed=boxed, truncated=truncated)


@pytest.mark.slow
def test_nothing_made_of_answers_raises():
    """Neither as an answer, of which nothing is known or allowed, nor as a gold."""
    for gold, response in itertools.islice(answers(5), 3000):
        grade_by_rules(response, gold, problem="Round to the nearest blorp.")
        grade_by_rules("Answer: x", response.removeprefix("Answer: "))


@pytest.mark.parametrize("share", [0.04, pytest.param(1.0, marks=pytest.mark.nightly)])
@pytest.mark.slow
def test_no_answer_cut_off_or_changed_in_one_token_raises(grader, share):
    """Here or in a worker: none is without verdict, but for its time or its memory."""
    draw = random.Random(11)
    asked = []
    for gold, response in labelled():
        for text in cut_or_changed(response, draw) if draw.random() < share else ():
            if draw.random() < share and isinstance(grade_by_rules(text, gold), Pending):
                asked.append(Item(text, gold))
    for first in range(0, len(asked), 1000):
        for item, verdict in zip(asked[first:][:1000], grader.grade(asked[first:][:1000]), strict=False):
            assert verdict.scored or "over its" in verdict.reason, (item, verdict.reason)


@pytest.mark.parametrize("error", [ValueError, RecursionError, MemoryError])
def test_an_answer_on_which_the_rules_raise_has_no_verdict_and_costs_no_other(monkeypatch, error):
    def rules(response, gold, **options):
        if "34," in response:
            raise error("no\x1b")
        return grade_by_rules(response, gold, **options)

    monkeypatch.setattr("strict_answers.grader.grade_by_rules", rules)
    bad, good = Item("Answer: 34,", "34"), Item("Answer: 34", "34")
    reason = f"the verifier failed on this answer: {error.__name__}: no\\x1b"
    assert verify(bad.response, "34") == Verdict(None, None, "timeout", reason)
    with Grader() as grader:
        for make_item in (lambda: bad, lambda: 1 / 0, lambda: good):
            grader.submit(make_item)
        verdicts = grader.grade([good, bad, good])
    assert [verdict.correct for verdict in verdicts] == [True, None, True]
    (row,) = [row for row in audit([good, bad, good], verdicts) if row["outcome"] == "unscored"]
    assert row["examples"] == [{"said": bad.response, "gold": "34", "reason": reason}]


@pytest.mark.slow
def test_a_gold_that_cannot_be_read_costs_two_workers_once():
    gold = "(1, 9^{9^{9^{9}}})"
    with Grader(seconds=0.3) as grader:
        good = Item("Answer: 2^5+2", "34")
        first = grader.grade([*(Item(f"Answer: (1, {n}+1)", gold) for n in range(20)), good])
        assert [verdict.correct for verdict in first] == [None] * 20 + [True]
        pids = [process.popen.pid for process in grader.pool.processes]
        second = grader.grade([Item(f"Answer: (1, {n}+2)", gold) for n in range(20)])
        assert {verdict.reason for verdict in second} == {first[1].reason}
        assert "the gold answer cannot be read: over its limit" in first[1].reason
        assert [process.popen.pid for process in grader.pool.processes] == pids


# Nothing is slow.

UNITS = [*"a ({}^$-=*|9𝟑\\", "^{", "a_", "a.", ", ", "1,", "1 ", "a'", "a b", "a(", "34=", "Answer: "]
UNITS += ["\\text{", "\\boxed{", "\\boxed{34}", "\\["]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.slow
def test_no_repetition_is_slow_to_scan(unit):
    """A pattern that backtracks takes minutes here, one that does not takes milliseconds."""
    start = time.process_time()
    for tail in ("", "1", "!", "é", "=34", "34é"):
        for gold in ("34", r"\sqrt{2}", "(1,2)"):
            grade_by_rules("Answer: " + (unit * 1000)[:990] + tail, gold)
            grade_by_rules("Answer: 34 " + (unit * 1000)[:980] + tail, gold)
            grade_by_rules("Answer: 34\n" + (unit * 1000)[:980] + tail, gold)
    assert time.process_time() - start < 60


@pytest.mark.parametrize("boxed", [False, pytest.param(True, marks=pytest.mark.nightly)])
@pytest.mark.slow
def test_four_megabytes_are_refused_in_milliseconds(boxed):
    """In 0.3 s, which leaves room for a slow machine."""
    slow = {}
    for unit in UNITS:
        body = unit * (4_000_000 // len(unit))
        for text in (
            body,
            "Answer: " + body,
            "Answer: 34\n" + body,
            body + "\nAnswer: 34",
            rf"\boxed{{{body}}}",
            body + r"\boxed{34}",
        ):
            times = []
            for _ in range(5):
                began = time.process_time()
                grade_by_rules(text, r"\sqrt{2}", boxed=boxed)
                times.append(time.process_time() - began)
                if times[-1] < 0.01:
                    break
            slow[unit, text[:12]] = min(times)
    assert max(slow.values()) < 0.3, sorted(slow.items(), key=lambda pair: -pair[1])[:5]


# By chance, with the cost of each verdict.

COUNT = 2000 * int(os.environ.get("STRICT_ANSWERS_SCALE", "1"))
MOST = 2.0
"Seconds of the processor that a verdict may take; a worker ends itself after 0.8."
TIMED_OUT = 1 / 400
"Share of answers that may pass the limits and then run over their time."


def judge_one(grader, gold, response):
    """(correct, path, seconds of the processor, here and in the worker); one that was killed has cost all it may."""
    if not any(process.ready and process.popen.poll() is None for process in grader.pool.processes):
        grader.probe()  # a start of a process is no part of a verdict
    worker = grader.pool.processes[0]
    clock = ~worker.popen.pid << 3 | 2  # Linux numbers the clocks of other processes so
    before, began = time.clock_gettime(clock), time.process_time()
    verdict = grader.grade([Item(response, gold)])[0]
    spent = time.process_time() - began
    spent += time.clock_gettime(clock) - before if worker in grader.pool.processes else 0.8 * (verdict.correct is None)
    return verdict.correct, verdict.path, spent


def resident():
    """MiB of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.nightly
def test_answers_by_chance():
    """None takes two seconds, few run over, the caller does not grow; and in another order, in another process, each
    gets the same verdict: caches and age of the worker change nothing.
    """
    rows = list(itertools.islice(answers(9), COUNT))
    with Grader() as grader:
        found = [judge_one(grader, gold, text) for gold, text in rows[: COUNT // 4]]
        gc.collect()
        early = resident()
        found += [judge_one(grader, gold, text) for gold, text in rows[COUNT // 4 :]]
        gc.collect()
        assert resident() - early <= 20
    with Grader() as grader:
        again = [judge_one(grader, gold, text) for gold, text in rows[::-1]][::-1]
    assert max(seconds for _, _, seconds in found) <= MOST
    paths = Counter(path for _, path, _ in found)
    assert paths["timeout"] <= TIMED_OUT * COUNT
    assert paths["rejected"] > 0.3 * COUNT, "otherwise nothing is tested here"
    assert paths["symbolic"] > 0.1 * COUNT
    differ = [(row, *pair) for row, *pair in zip(rows, found, again, strict=True) if pair[0][:2] != pair[1][:2]]
    assert not [case for case in differ if None not in (case[1][0], case[2][0])], differ
    assert len(differ) <= TIMED_OUT * COUNT, "at the limit of time one may waver"


@pytest.mark.nightly
def test_good_answers_stay_right_among_hostile_ones_while_workers_are_killed():
    """At most one kill in a batch: an answer that loses its worker is tried once more."""
    draw = random.Random(1)
    good = [row for row in ATTACKS if row.correct and not row.boxed]
    hostile = [Item(row.response, row.gold) for row in ATTACKS if not row.correct and not row.boxed]
    hostile += [Item(text, gold) for gold, text in itertools.islice(answers(3), 300)]
    with Grader(workers=2) as grader:
        for _ in range(8):
            grader.probe()
            rows = [draw.choice(good) for _ in range(90)]
            items = [Item("So. " * draw.randint(0, 50) + row.response, row.gold) for row in rows]
            victim = grader.pool.processes[0].popen.pid
            timer = threading.Timer(draw.uniform(0, 0.05), os.kill, (victim, signal.SIGKILL))
            timer.start()
            verdicts = grader.grade(items + draw.sample(hostile, 10))
            timer.join()
            missed = [(item, verdict) for item, verdict in zip(items, verdicts, strict=False) if not verdict.correct]
            assert not missed
