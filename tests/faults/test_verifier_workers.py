"""What a worker of the verifier may do: little, for a short time. What the caller makes of its failures: no verdict.

Model output is parsed nowhere else: the caller never imports the parser. Good answers among hostile ones, with workers
killed meanwhile, are all right, and no gold is out of reach.
"""

import itertools
import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from strict_answers import Grader, Item
from strict_answers import grader as grader_module
from strict_answers import pool as pool_module
from strict_answers.process import INHERITED
from strict_answers.rules import Pending, grade_by_rules

from .attacks import answers, attacks
from .harness import scaled

SECRETS = {
    "HF_TOKEN": "hf_x",
    "AWS_SECRET_ACCESS_KEY": "x",
    "WANDB_API_KEY": "x",
    "OPENAI_API_KEY": "x",
    "MY_PASSWORD": "x",
}
GOOD, GOLD = Item("Answer: 2^5+2", "34"), "(x+y+z+w+u+v)^{20}"
HARD = Item("Answer: (x+y+z+w+u+v)^{18}(x^2+y^2+z^2+2xy+2xz+2yz+(w+u+v)^2+2(x+y+z)(w+u+v))", GOLD)
"Equal, by an expansion that takes seconds and a lot of memory; the guard lets it pass as the gold is of its kind."


def pid_of(grader: Grader) -> int:
    assert grader.probe().correct is True
    return grader.pool.processes[0].popen.pid


def test_a_worker_sees_no_secret(monkeypatch):
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    with Grader() as grader:
        text = Path(f"/proc/{pid_of(grader)}/environ").read_text()
    names = {line.partition("=")[0] for line in text.split("\0") if line}
    threads = {"OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"}
    assert names <= {*INHERITED, *threads, "PYTHONPATH", "PYTHONHASHSEED", "LC_CTYPE"}
    assert not any(value in text for value in ("hf_x", "SECRET", "PASSWORD"))


def test_a_worker_is_limited():
    """Memory, processor time, files, processes; and no core file of what it held."""
    with Grader(memory_mb=300) as grader:
        pid = pid_of(grader)
        limits = {name: resource.prlimit(pid, getattr(resource, name)) for name in dir(resource) if "RLIMIT_" in name}
        size = int(Path(f"/proc/{pid}/statm").read_text().split()[0]) * resource.getpagesize()
        opened = {os.readlink(link).partition(":")[0] for link in Path(f"/proc/{pid}/fd").iterdir()}
    assert size < limits["RLIMIT_AS"][0] <= size + 300 * 2**20
    assert 0 < limits["RLIMIT_CPU"][0] < 60
    assert limits["RLIMIT_FSIZE"] == limits["RLIMIT_NPROC"] == limits["RLIMIT_CORE"] == (0, 0)
    assert limits["RLIMIT_NOFILE"] == (64, 64)
    assert opened <= {"pipe", "/dev/null"}, "nothing of the caller is open in a worker"


def test_a_comparison_needs_no_network_no_file_and_no_process():
    """An audit hook ends the process at the first attempt; the answers are those of a worker that may."""
    code = """
import os, sys
from strict_answers import symbolic, worker
judge = symbolic.load(None, 1.0)
def hook(event, args):
    writes = event == "open" and (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or event.startswith(("socket.", "subprocess.", "os.fork", "os.exec", "os.system", "os.posix_spawn")):
        os.write(2, f"{event} {args}".encode())
        os._exit(9)
sys.addaudithook(hook)
for span, gold in [("2^5+2", "34"), (r"\\frac{1}{2}", "0.5"), (r"\\sqrt{8}/2", r"\\sqrt{2}"), ("[1,2)", "[1,2)"),
                   ("x<3", "3>x"), ("(x+1)^2", "x^2+2x+1"), (r"\\sin(2)", r"2\\sin(1)\\cos(1)"),
                   ("__import__('socket')", "34")]:
    print(worker.answer(judge, {"members": [[["", span]]], "gold": [["", gold]]})["correct"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"] * 7 + ["False"]


def test_the_caller_never_loads_the_parser():
    code = """
import sys
from strict_answers import Grader, Item, audit
with Grader() as grader:
    items = [Item("Answer: 2^5+2", "34"), Item("Answer: 9^{9^9}", "34"), Item(r"Answer: \\\\frac{1}{2}", "0.5")]
    print([verdict.correct for verdict in grader.grade(items)], audit(items, grader.grade(items)) != [])
print({name.partition(".")[0] for name in sys.modules} & {"sympy", "math_verify", "latex2sympy2_extended", "antlr4"})
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.split("\n")[:2] == ["[True, False, True] True", "set()"]


def test_over_its_time_is_no_verdict_at_once_and_not_wrong():
    """The worker ends itself: its processor time, and that of the caller, stay below a second. No second try."""
    with Grader() as grader:
        pid_of(grader)
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.process_time()
        first = grader.pool.processes[0]
        verdict = grader.grade([HARD])[0]
        caller, after = time.process_time() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        assert first.popen.returncode == -signal.SIGPROF
        assert not grader.pool.processes
        assert grader.grade([GOOD])[0].correct is True
    assert (verdict.correct, verdict.value, verdict.path) == (None, None, "timeout")
    assert "processor time of 0.8 s" in verdict.reason
    assert caller < 2
    assert after.ru_utime - before.ru_utime < 60, "start included, which a slow machine makes long"


@pytest.mark.nightly
def test_over_its_memory_is_no_verdict_and_not_wrong():
    """math-verify takes a lack of memory for unequal; the worker sees that it was near its limit."""
    with Grader(seconds=100, memory_mb=16) as grader:
        bad, good = grader.grade([HARD, GOOD])
    assert (bad.correct, bad.path, bad.reason) == (None, "timeout", "over its memory limit, twice")
    assert good.correct is True


@pytest.mark.nightly
def test_a_stopped_worker_is_no_verdict_until_it_is_tried_again(monkeypatch):
    """SIGSTOP, as on a machine that swaps: no processor time passes, so the clock decides; it is tried again alone."""
    monkeypatch.setattr(grader_module, "PATIENCE", 1)
    with Grader(seconds=3) as grader:
        victim = pid_of(grader)
        os.kill(victim, signal.SIGSTOP)
        verdict = grader.grade([GOOD])[0]
        assert verdict.correct is True
        assert grader.pool.processes[0].popen.pid != victim


@pytest.mark.nightly
def test_load_changes_no_verdict():
    """Four busy processes beside it: time by the clock is many times that of the processor, and nothing is unscored."""
    items = [Item(f"Answer: (x+{k})^2", f"x^2+{2 * k}x+{k * k}") for k in range(1, 9)]
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(4)]
    try:
        with Grader() as grader:
            assert [verdict.correct for verdict in grader.grade(items)] == [True] * 8
    finally:
        for process in busy:
            process.kill()
            process.wait()


@pytest.mark.parametrize("when", ["start", "start twice", "idle"])
def test_a_worker_killed_as_it_starts_is_replaced(monkeypatch, when):
    """Once is an accident; twice in a row is an outage, which scores nothing and says so."""
    real, killed = pool_module.WorkerProcess, []

    class Doomed(real):
        def __init__(self, *args):
            super().__init__(*args)
            if len(killed) < {"start": 1, "start twice": 2, "idle": 0}[when]:
                killed.append(self.popen.pid)
                os.kill(self.popen.pid, signal.SIGKILL)

    monkeypatch.setattr(pool_module, "WorkerProcess", Doomed)
    with Grader() as grader:
        if when == "idle":
            os.kill(pid_of(grader), signal.SIGKILL)
        verdict = grader.grade([GOOD])[0]
        if when == "start twice":
            assert verdict.correct is None
            assert "cannot start" in verdict.reason
            verdict = grader.grade([GOOD])[0]
        assert verdict.correct is True


@pytest.mark.nightly
def test_no_number_is_infinite_whatever_a_simplification_says():
    """Undecided, math-verify draws numbers and says at times that cosh(oo) is 28: in no process, of any hash seed."""
    code = r"""
from strict_answers.symbolic import compare
print({compare(span, gold) for gold in ("28", "34", "0.5") for span in (r"\cosh{\infty}", r"e^{\infty}", r"34+\infty")})
"""
    for number in "123":
        environment = {**os.environ, "PYTHONHASHSEED": number}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        assert done.stdout == "{(False, 'the values differ')}\n"


# Good answers among hostile ones.

ROOT = Path(__file__).parents[2]
ROWS = scaled(800)
BATCH = 100
HOSTILE = 0.1


def stream(seed: int):
    """(item, None if it is hostile else True): one in ten is hostile, an attack or what the grammar makes."""
    draw = random.Random(seed)
    rows = [row for row in attacks() if not row.boxed]
    good = [row for row in rows if row.correct]
    hostile = [Item(row.response, row.gold) for row in rows if not row.correct]
    hostile += [Item(text, gold) for _, gold, text in itertools.islice(answers(seed), 300)]
    while True:
        if draw.random() < HOSTILE:
            yield draw.choice(hostile), None
        else:
            row = draw.choice(good)
            yield Item("Let me see. " * draw.randint(0, 50) + row.response, row.gold), True


def kill_one(grader: Grader, delay: float) -> threading.Timer:
    """SIGKILL for a worker, as from a kernel short of memory, so many seconds from now."""

    def strike() -> None:
        for process in list(grader.pool.processes)[:1]:
            if process.popen.returncode is None:  # collected ones may have given their number to others
                os.kill(process.popen.pid, signal.SIGKILL)

    timer = threading.Timer(delay, strike)
    timer.start()
    return timer


@pytest.mark.nightly
def test_good_answers_stay_right_while_workers_are_killed():
    """At most one kill in a batch: an answer that loses its worker is tried once more."""
    draw, kills = random.Random(1), 0
    rows = list(itertools.islice(stream(3), ROWS))
    with Grader(workers=2) as grader:
        grader.probe()
        for start in range(0, ROWS, BATCH):
            batch = rows[start : start + BATCH]
            pids = {process.popen.pid for process in grader.pool.processes}
            timer = kill_one(grader, draw.uniform(0, 0.2)) if start % (2 * BATCH) == 0 else None
            verdicts = grader.grade([item for item, _ in batch])
            if timer is not None:
                timer.join()
                kills += any(not Path(f"/proc/{pid}/fd").exists() or killed(pid) for pid in pids)
            missed = [
                (item.response[-80:], item.gold, verdict)
                for (item, right), verdict in zip(batch, verdicts, strict=True)
                if right and verdict.correct is not True
            ]
            assert not missed, missed
    assert kills >= 1, "no worker was killed: this test saw nothing"


def killed(pid: int) -> bool:
    """Whether a process is gone or waits to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except FileNotFoundError:
        return True


def shipped_golds() -> list[str]:
    """Answers of every problem that comes with the package, without repeats."""
    files = [*(ROOT / "pmdkit/envs/math/data").glob("*.jsonl"), *(ROOT / "envs/math").glob("*.jsonl")]
    golds = []
    for file in files:
        for line in file.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            golds.append(row["answer"] if "answer" in row else row["reward_model"]["ground_truth"])
    return sorted(set(map(str, golds)))


def integer_forms(gold: str) -> list[str]:
    """Twenty ways in which models write an integer, and what may stand around it."""
    value = int(gold)
    sign, grouped = "-" * (value < 0), f"{abs(value):,}"
    digits = f"{sign}{abs(value)}"
    return [
        *(digits, f"{digits}.", f"{digits},", f"{digits}.0", f"{digits}.00", f" {digits} ", f"\n{digits}"),
        *(f"${digits}$", f"${digits}$.", rf"\({digits}\)", rf"\[{digits}\]", f"$${digits}$$", rf"\boxed{{{digits}}}"),
        *(f"**{digits}**", f"`{digits}`", rf"\text{{{digits}}}", rf"\mathbf{{{digits}}}", f"{sign}0{abs(value)}"),
        *(
            f"{sign}{grouped}",
            f"{sign}{grouped.replace(',', '{,}')}",
            f"x = {digits}",
            f"{digits} cm",
            rf"{digits}^\circ",
        ),
        *(rf"\frac{{{2 * value}}}{{2}}", f"{3 * value}/3", f"The answer is {digits}.", f"The answer is **{digits}**."),
        *(f"The answer is ${digits}$.", f"$$\n\\boxed{{{digits}}}\n$$", f"{digits}\nThis is because it fits."),
    ]


def latex_forms(gold: str) -> list[str]:
    """Twenty ways to frame any answer."""
    spaced = gold.replace("+", " + ").replace("=", " = ")
    return [
        *(gold, f"{gold}.", f" {gold} ", f"${gold}$", f"${gold}$.", f"$ {gold} $", rf"\({gold}\)", rf"\( {gold} \)"),
        *(
            f"$${gold}$$",
            rf"\[{gold}\]",
            f"$$\n{gold}\n$$",
            f"\\[\n{gold}\n\\]",
            rf"\boxed{{{gold}}}",
            rf"$\boxed{{{gold}}}$",
        ),
        *(
            rf"$\boxed{{{gold}}}$.",
            f"**${gold}$**",
            f"\n{gold}",
            f"\n\n${gold}$",
            f"{gold}\nThis is because it fits.",
            spaced,
        ),
        *(f"The answer is ${gold}$.", rf"The answer is \({gold}\)", f"$${gold}$$."),
    ]


def test_every_shipped_gold_is_accepted_in_thirty_forms():
    golds = shipped_golds()
    assert len(golds) > 50
    missed = []
    for gold in golds:
        for form in integer_forms(gold):
            said = grade_by_rules(f"So it goes.\nAnswer: {form}", gold)
            if isinstance(said, Pending) or said.correct is not True:
                missed.append((form, gold, said))
    assert not missed


@pytest.fixture(scope="module")
def golds():
    """Of data sets and other suites; left out are whole solutions and broken ones that stand where a gold should."""
    rows = [json.loads(line) for line in (ROOT / "tests/data/verifier_cases.jsonl").read_text("utf-8").splitlines()]
    golds = {row["gold"].strip("$") for row in rows if row.get("gold")}
    golds = sorted(gold for gold in golds if 0 < len(gold) < 80 and not any(mark in gold for mark in ("box", "$")))
    random.Random(0).shuffle(golds)
    return [gold for gold in golds if not gold.endswith("\\")][: scaled(120)]


def test_golds_of_every_kind_are_accepted_in_twenty_forms(golds):
    """A gold that its own text does not reach would be a problem that nobody can solve."""
    assert len(golds) >= 100
    items = [Item(f"Answer: {form}", gold) for gold in golds for form in latex_forms(gold)]
    with Grader() as grader:
        verdicts = grader.grade(items)
    missed = [
        (item.response, item.gold, verdict)
        for item, verdict in zip(items, verdicts, strict=True)
        if verdict.correct is not True
    ]
    assert not missed, f"{len(missed)} of {len(items)}: {missed[:20]}"
