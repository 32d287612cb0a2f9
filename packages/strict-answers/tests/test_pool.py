"""The pool: workers are killed, hang and grow; every item gets its verdict, in order, and a journal makes it last."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from own_judge import OwnGrader

from strict_answers import Grader, Item, Verdict, symbolic, verify
from strict_answers import grader as grader_module
from strict_answers import pool as pool_module
from strict_answers.journal import JournalDamaged, VerdictJournal
from strict_answers.process import CannotLoad

GOOD = Item("Answer: 2^5+2", "34")
HARD = Item("Answer: (x+y+z+w+u+v)^{18}(x^2+y^2+z^2+2xy+2xz+2yz+(w+u+v)^2+2(x+y+z)(w+u+v))", "(x+y+z+w+u+v)^{20}")
"Equal, by an expansion that takes seconds and a lot of memory; the limits let it pass as the gold is of its kind."


@pytest.fixture(scope="module")
def own():
    with OwnGrader() as grader:
        yield grader


def pid_of(grader):
    assert grader.probe().correct is True
    return grader.pool.processes[0].popen.pid


def ended(pid):
    """Whether a process is gone or waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("response", "path", "reason"),
    [
        ("hang", "timeout", "0.4 s, twice"),
        ("eat", "timeout", "memory limit, twice"),
        ("die", "timeout", "died, twice"),
        ("raise", "own", "KeyError"),
        ("leave", "own", "SystemExit: bye"),
    ],
)
def test_whatever_a_judge_does_is_no_verdict_and_the_next_item_is_judged(own, tmp_path, response, path, reason):
    bad, good = own.grade([Item(response, str(tmp_path / "mark")), Item("four", "")])
    assert (bad.correct, bad.value, bad.path) == (None, None, path)
    assert reason in bad.reason
    assert len(bad.reason) < 300
    assert good.value == 0.5


def test_a_judge_that_cannot_be_loaded():
    with OwnGrader("bad") as grader:
        with pytest.raises(CannotLoad, match="no_such_module_anywhere"):
            grader.pool.ensure(1)
        assert grader.grade([Item("four", "")])[0].correct is None
    with pytest.raises(ValueError, match="workers = 0"):
        Grader(workers=0)


@pytest.mark.slow
def test_a_second_chance_is_taken_and_no_secret_is_seen(own, tmp_path, monkeypatch):
    """Also when the worker is killed in the middle of a call, as by a kernel short of memory."""
    assert own.grade([Item("hang once", str(tmp_path / "mark"))])[0].value == 9 / 8
    victim = own.pool.processes[0].popen.pid
    threading.Timer(0.1, os.kill, (victim, signal.SIGKILL)).start()
    assert own.grade([Item("hang once", str(tmp_path / "other"))])[0].value == 9 / 8
    own.close()
    monkeypatch.setenv("MY_SECRET", "x")
    assert own.grade([Item("secret", "")])[0].value == 0


def test_integers_start_no_process():
    with Grader() as grader:
        verdicts = grader.grade([Item("Answer: 34", "34"), Item("Answer: 9^{9^{9}}", "34"), Item("34", "34")])
        assert [verdict.path for verdict in verdicts] == ["integer", "rejected", "none"]
        assert grader.pool.processes == []


@pytest.mark.slow
def test_order_is_kept_over_two_workers_which_end_with_the_grader():
    items = [Item(f"Answer: 2^5+{k % 4}", "34") for k in range(40)]
    with Grader(workers=2) as grader:
        assert [verdict.correct for verdict in grader.grade(items)] == [k % 4 == 2 for k in range(40)]
        pids = [process.popen.pid for process in grader.pool.processes]
        assert len(pids) == 2
    assert all(ended(pid) for pid in pids)


@pytest.mark.slow
def test_items_submitted_ahead_get_the_same_verdicts():
    items = [Item(f"Answer: 2^5+{k}", "34") for k in range(4)]
    with Grader() as grader:
        for item in items:
            grader.submit(lambda item=item: item)
        assert [verdict.correct for verdict in grader.grade(items)] == [False, False, True, False]


@pytest.mark.slow
def test_over_its_time_is_no_verdict_at_once_and_not_wrong():
    """The worker ends itself by its processor time, and the others are right."""
    with Grader(seconds=0.5) as grader:
        pid_of(grader)
        first = grader.pool.processes[0]
        verdicts = grader.grade([GOOD, HARD, Item("Answer: 2^5+3", "34")])
        assert first.popen.returncode == -signal.SIGPROF
    assert [verdict.correct for verdict in verdicts] == [True, None, False]
    assert (verdicts[1].value, verdicts[1].path) == (None, "timeout")
    assert "0.5 s" in verdicts[1].reason


@pytest.mark.nightly
def test_over_its_memory_is_no_verdict_and_not_wrong():
    """math-verify takes a lack of memory for unequal; the worker sees that it was near its limit."""
    with Grader(seconds=100, memory_mb=16) as grader:
        bad, good = grader.grade([HARD, GOOD])
    assert (bad.correct, bad.path) == (None, "timeout")
    assert "memory" in bad.reason
    assert good.correct is True


@pytest.mark.nightly
def test_a_stopped_worker_is_tried_again(monkeypatch):
    """SIGSTOP, as on a machine that swaps: no processor time passes, so the clock decides."""
    monkeypatch.setattr(grader_module, "PATIENCE", 1)
    with Grader(seconds=3) as grader:
        os.kill(pid_of(grader), signal.SIGSTOP)
        assert grader.grade([GOOD])[0].correct is True


@pytest.mark.parametrize("kills", [pytest.param(0, marks=pytest.mark.nightly), 1, 2])
@pytest.mark.slow
def test_a_worker_killed_when_idle_or_as_it_starts_is_replaced(monkeypatch, kills):
    """Once is an accident; twice in a row is an outage, which scores nothing and says so."""
    killed = []

    class Doomed(pool_module.WorkerProcess):
        def __init__(self, *args):
            super().__init__(*args)
            if len(killed) < kills:
                killed.append(self.popen.pid)
                os.kill(self.popen.pid, signal.SIGKILL)

    monkeypatch.setattr(pool_module, "WorkerProcess", Doomed)
    with Grader() as grader:
        if kills == 0:
            os.kill(pid_of(grader), signal.SIGKILL)
        verdict = grader.grade([GOOD])[0]
        if kills == 2:
            assert verdict.correct is None
            verdict = grader.grade([GOOD])[0]
        assert verdict.correct is True


@pytest.mark.slow
def test_workers_are_replaced_after_many_calls(grader, monkeypatch):
    before = pid_of(grader)
    monkeypatch.setattr(pool_module, "CALLS", 1)
    assert pid_of(grader) != before
    assert ended(before)


def test_a_pool_that_cannot_start_says_why_and_scores_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with Grader(journal=tmp_path / "journal.jsonl") as grader:
        assert "no-python" in grader.probe().reason
        assert [verdict.correct for verdict in grader.grade([GOOD, Item("Answer: 34", "34")])] == [None, True]
    assert (tmp_path / "journal.jsonl").read_text() == "", "an outage is no verdict to remember"


@pytest.mark.parametrize("verdict", [True, False])
def test_a_library_that_fails_in_silence_is_not_loaded(verdict, monkeypatch):
    """A version of math-verify for which everything is equal, or unequal."""
    monkeypatch.setattr(symbolic, "compare", lambda span, gold: (verdict, ""))
    with pytest.raises(ValueError, match="math-verify is broken"):
        symbolic.load(None, 1.0)


@pytest.mark.slow
def test_a_worker_dies_with_its_parent():
    script = (
        "import time\nfrom strict_answers import Grader\n"
        "grader = Grader()\ngrader.probe()\nprint(grader.pool.processes[0].popen.pid, flush=True)\ntime.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 5
    while not ended(worker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert ended(worker)


@pytest.mark.slow
def test_verify_works_from_any_thread():
    found = []
    threads = [threading.Thread(target=lambda: found.append(verify("Answer: 2^5+2", "34").correct)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


@pytest.mark.slow
def test_a_resumed_run_gets_the_same_verdicts(tmp_path):
    """Also for a time-out, and without asking a worker; a torn last line is dropped; another judge is asked anew."""
    path = tmp_path / "journal.jsonl"
    items = [Item("hang", str(tmp_path / "mark")), Item("six", "34"), Item("lone \ud800", "34")]
    with OwnGrader(seconds=0.3, journal=path) as grader:
        first = grader.grade(items)
    rows = path.read_bytes()
    assert len(rows.splitlines()) == 3
    with open(path, "ab") as file:
        file.write(rows[:50])
    with OwnGrader(seconds=0.3, journal=path) as grader:
        assert grader.grade(items) == first
        assert grader.pool.processes == []
        grader.grade([Item("seven", "34")])
        grader.identity = "another"
        grader.grade([Item("seven", "34")])
    assert path.read_bytes().startswith(rows)
    assert len(VerdictJournal(path).verdicts) == 5


def test_a_damaged_journal_is_refused(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text('{"key": "a"}\n')
    with pytest.raises(JournalDamaged, match="line 1"):
        VerdictJournal(path)
    path.write_text(json.dumps({"key": "a", "correct": True, "extracted": "1", "path": "own", "reason": ""}) + "\n")
    assert VerdictJournal(path).get("a") == Verdict(True, "1", "own", "")
