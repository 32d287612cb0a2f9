"""Worker processes: killed, replaced, limited; and a journal that makes their verdicts last."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pmdkit.envs.reward_functions import FunctionGrader
from pmdkit.errors import UsageError
from strict_answers import Grader, Item, Verdict, verify
from strict_answers import pool as pool_module
from strict_answers.journal import JournalDamaged, VerdictJournal

OWN = """
import math, os, sys, time

def grade(response, gold):
    print("noise on the pipe")
    if response == "hang":
        time.sleep(60)
    if response == "hang once":
        if not os.path.exists(gold):
            open(gold, "w").close()
            time.sleep(60)
        return 1
    if response == "eat":
        return len(bytearray(10 * 2**30)) > 0
    if response == "die":
        os._exit(1)
    if response == "leave":
        sys.exit("bye")
    if response == "modules":
        return "torch" not in sys.modules
    if response == "secret":
        return "PMDKIT_SECRET" not in os.environ
    if response == "raise":
        raise KeyError("no such thing")
    return {"nan": math.nan, "inf": math.inf, "two": 2, "minus": -0.1, "text": "good", "none": None,
            "half": 0.5, "true": True, "false": False, "third": 1 / 3}[response]
"""
HARD = "Answer: (x+y+z+w+u+v)^{18}(x^2+y^2+z^2+2xy+2xz+2yz+(w+u+v)^2+2(x+y+z)(w+u+v))"
HARD_GOLD = "(x+y+z+w+u+v)^{20}"


@pytest.fixture(scope="module")
def own_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("own") / "mine.py"
    path.write_text(OWN)
    return path


@pytest.fixture(scope="module")
def own(own_file):
    with FunctionGrader(f"{own_file}:grade", seconds=0.4, memory_mb=256) as grader:
        yield grader


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("response", "correct", "path", "reason"),
    [
        ("true", True, "own", "graded 1"),
        ("false", False, "own", "graded 0"),
        ("half", True, "own", "graded 0.5"),
        ("third", False, "own", "graded 0.333"),
        ("nan", None, "own", "nan; expected a number from 0 to 1"),
        ("inf", None, "own", "inf"),
        ("two", None, "own", "2.0"),
        ("minus", None, "own", "-0.1"),
        ("text", None, "own", "str; expected a number"),
        ("none", None, "own", "NoneType"),
        ("raise", None, "own", "KeyError: 'no such thing'"),
        ("leave", None, "own", "SystemExit: bye"),
        ("hang", None, "timeout", "no answer within 0.4 s, twice"),
        ("eat", None, "timeout", "over its memory limit, twice"),
        ("die", None, "timeout", "the worker died, twice"),
        ("modules", True, "own", ""),
        ("secret", True, "own", ""),
    ],
)
def test_own_grader(own, monkeypatch, response, correct, path, reason):
    """Whatever it does, the verdict says so, a failure is never 0, and the next item is graded as ever."""
    monkeypatch.setenv("PMDKIT_SECRET", "x")
    bad, good = own.grade([Item(response, "34"), Item("true", "34")])
    assert (bad.correct, bad.path) == (correct, path)
    assert reason in bad.reason
    assert (bad.value is None) == (correct is None)
    assert good.value == 1.0


@pytest.mark.slow
def test_a_second_chance_is_taken(own, tmp_path):
    assert own.grade([Item("hang once", str(tmp_path / "mark"))])[0].value == 1.0


def test_cut_off_responses_are_wrong_for_own_graders_too(own):
    assert own.grade([Item("true", "34", truncated=True)])[0] == Verdict(
        False, None, "rejected", "cut off by the length limit", 0.0
    )


@pytest.mark.slow
def test_own_graders_that_cannot_be_used(tmp_path):
    (tmp_path / "broken.py").write_text("import no_such_module_anywhere")
    (tmp_path / "empty.py").write_text("")
    for name, words in (
        ("broken.py:grade", "no_such_module"),
        ("empty.py:grade", "no function"),
        ("no.py:grade", "not a"),
    ):
        with pytest.raises(UsageError, match=words):
            FunctionGrader(str(tmp_path / name))
    with pytest.raises(UsageError, match="names no grader"):
        FunctionGrader("mine.py")
    with pytest.raises(ValueError, match="workers = 0"):
        Grader(workers=0)


def test_the_example_on_the_shelf():
    from pmdkit.specs import find

    file = find.spec_file("needle", "bandit").parents[1] / "own_reward.py"
    with FunctionGrader(f"{file}:grade") as grader:
        values = [grader.grade([Item(text, "34")])[0].value for text in ("Answer: 34", "Answer: 33", "34")]
    assert values == [1.0, 0.5, 0.0]


def test_integers_start_no_process():
    with Grader() as grader:
        verdicts = grader.grade([Item("Answer: 34", "34"), Item("Answer: 9^{9^{9}}", "34"), Item("34", "34")])
        assert [verdict.path for verdict in verdicts] == ["integer", "rejected", "none"]
        assert grader.pool.processes == []


@pytest.mark.slow
def test_order_is_kept_and_equal_items_agree_over_two_workers():
    items = [Item(f"Answer: 2^5+{k % 4}", "34") for k in range(40)]
    with Grader(workers=2) as grader:
        assert [verdict.correct for verdict in grader.grade(items)] == [k % 4 == 2 for k in range(40)]
        pids = [process.popen.pid for process in grader.pool.processes]
        assert len(pids) == 2
    assert all(gone(pid) for pid in pids)


@pytest.mark.slow
def test_a_hard_item_is_unscored_and_the_others_are_right():
    with Grader(seconds=0.5) as grader:
        items = [Item("Answer: 2^5+2", "34"), Item(HARD, HARD_GOLD), Item("Answer: 2^5+3", "34")]
        verdicts = grader.grade(items)
    assert [verdict.correct for verdict in verdicts] == [True, None, False]
    assert verdicts[1].path == "timeout"
    assert verdicts[1].value is None


def test_a_worker_killed_in_the_middle_of_a_call(own, tmp_path):
    """SIGKILL from outside, as by the kernel short of memory: tried again in a new worker, nobody else notices."""
    own.grade([Item("true", "34")])
    victim = own.pool.processes[0].popen.pid
    threading.Timer(0.1, os.kill, (victim, signal.SIGKILL)).start()
    assert own.grade([Item("hang once", str(tmp_path / "mark")), Item("true", "35")])[0].value == 1.0
    assert own.pool.processes[0].popen.pid != victim


@pytest.mark.slow
def test_a_worker_that_died_idle_costs_nothing(grader):
    grader.probe()
    os.kill(grader.pool.processes[0].popen.pid, signal.SIGKILL)
    assert grader.grade([Item("Answer: 2^5+2", "34")])[0].correct is True


@pytest.mark.slow
def test_workers_are_replaced_after_many_calls(grader, monkeypatch):
    grader.probe()
    before = grader.pool.processes[0].popen.pid
    monkeypatch.setattr(pool_module, "CALLS", 1)
    assert grader.probe().correct is True
    assert grader.pool.processes[0].popen.pid != before
    assert gone(before)


def test_a_pool_that_cannot_start_says_why_and_scores_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with Grader(journal=tmp_path / "journal.jsonl") as grader:
        assert "cannot start" in grader.probe().reason
        verdicts = grader.grade([Item("Answer: 2^5+2", "34"), Item("Answer: 34", "34")])
    assert [verdict.correct for verdict in verdicts] == [None, True]
    assert (tmp_path / "journal.jsonl").read_text() == "", "an outage is no verdict to remember"


@pytest.mark.slow
def test_a_worker_dies_with_its_parent():
    script = (
        "import os, time\nfrom strict_answers import Grader\n"
        "grader = Grader()\ngrader.probe()\nprint(grader.pool.processes[0].popen.pid, flush=True)\ntime.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    worker = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    deadline = time.monotonic() + 5
    while not dead_or_zombie(worker) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert dead_or_zombie(worker)


def dead_or_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


@pytest.mark.slow  # many workers
def test_verify_works_from_any_thread():
    found = []
    threads = [threading.Thread(target=lambda: found.append(verify("Answer: 2^5+2", "34").correct)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [True] * 4


@pytest.mark.slow
def test_the_worker_imports_no_torch():
    code = "import sys, strict_answers.symbolic as w; w.load(None, 1.0); print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


@pytest.mark.slow
def test_a_resumed_run_gets_the_same_verdicts(tmp_path, own_file):
    """Also for a time-out, and without asking a worker; a torn last line is dropped."""
    path = tmp_path / "journal.jsonl"
    items = [Item("hang", "34"), Item("third", "34"), Item("lone \ud800", "34")]
    with FunctionGrader(f"{own_file}:grade", seconds=0.3, journal=path) as grader:
        first = grader.grade(items)
    rows = path.read_bytes()
    assert len(rows.splitlines()) == 3
    with open(path, "ab") as file:
        file.write(rows[:50])
    with FunctionGrader(f"{own_file}:grade", seconds=0.3, journal=path) as grader:
        before = grader.pool.processes[0].calls
        assert grader.grade(items) == first
        assert grader.pool.processes[0].calls == before
        grader.grade([Item("half", "34")])
    assert path.read_bytes().startswith(rows)
    assert len(VerdictJournal(path).verdicts) == 4
    own_file.write_text(own_file.read_text() + "\n# edited: another judge\n")
    with FunctionGrader(f"{own_file}:grade", seconds=0.3, journal=path) as grader:
        grader.grade([Item("third", "34")])
    assert len(path.read_bytes().splitlines()) == 5


def test_a_damaged_journal_is_refused(tmp_path):
    path = tmp_path / "journal.jsonl"
    path.write_text('{"key": "a"}\n')
    with pytest.raises(JournalDamaged, match="line 1"):
        VerdictJournal(path)
    path.write_text(json.dumps({"key": "a", "correct": True, "extracted": "1", "path": "own", "reason": ""}) + "\n")
    assert VerdictJournal(path).get("a").correct is True
