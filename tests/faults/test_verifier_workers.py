"""What a worker of the verifier may do: little, for a short time. What the caller makes of its failures: no verdict.

Model output is parsed nowhere else: the caller never imports the parser.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pmdkit.envs.verifier import Grader, Item
from pmdkit.envs.verifier import pool as pool_module
from pmdkit.processes import INHERITED

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
    return grader.processes[0].popen.pid


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
from pmdkit.envs.verifier import worker
judge = worker.load("math")
def hook(event, args):
    writes = event == "open" and (args[2] or 0) & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
    if writes or event.startswith(("socket.", "subprocess.", "os.fork", "os.exec", "os.system", "os.posix_spawn")):
        os.write(2, f"{event} {args}".encode())
        os._exit(9)
sys.addaudithook(hook)
for span, gold in [("2^5+2", "34"), (r"\\frac{1}{2}", "0.5"), (r"\\sqrt{8}/2", r"\\sqrt{2}"), ("[1,2)", "[1,2)"),
                   ("x<3", "3>x"), ("(x+1)^2", "x^2+2x+1"), (r"\\sin(2)", r"2\\sin(1)\\cos(1)"),
                   ("__import__('socket')", "34")]:
    print(worker.answer(judge, {"span": span, "gold": gold})["correct"])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True"] * 7 + ["False"]


def test_the_caller_never_loads_the_parser():
    code = """
import sys
from pmdkit.envs.verifier import Grader, Item, audit
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
        first = grader.processes[0]
        verdict = grader.grade([HARD])[0]
        caller, after = time.process_time() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        assert first.popen.returncode == -signal.SIGPROF
        assert not grader.processes
        assert grader.grade([GOOD])[0].correct is True
    assert (verdict.correct, verdict.value, verdict.path) == (None, None, "timeout")
    assert "processor time of 0.8 s" in verdict.reason
    assert caller < 0.2
    assert after.ru_utime - before.ru_utime < 10, "start included, which a slow machine makes long"


def test_over_its_memory_is_no_verdict_and_not_wrong():
    """math-verify takes a lack of memory for unequal; the worker sees that it was near its limit."""
    with Grader(seconds=100, memory_mb=16) as grader:
        bad, good = grader.grade([HARD, GOOD])
    assert (bad.correct, bad.path, bad.reason) == (None, "timeout", "over its memory limit, twice")
    assert good.correct is True


def test_a_stopped_worker_is_no_verdict_until_it_is_tried_again(monkeypatch):
    """SIGSTOP, as on a machine that swaps: no processor time passes, so the clock decides; it is tried again alone."""
    monkeypatch.setattr(pool_module, "PATIENCE", 1)
    with Grader(seconds=3) as grader:
        victim = pid_of(grader)
        os.kill(victim, signal.SIGSTOP)
        verdict = grader.grade([GOOD])[0]
        assert verdict.correct is True
        assert grader.processes[0].popen.pid != victim


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
    real, killed = pool_module.VerifierProcess, []

    class Doomed(real):
        def __init__(self, *args):
            super().__init__(*args)
            if len(killed) < {"start": 1, "start twice": 2, "idle": 0}[when]:
                killed.append(self.popen.pid)
                os.kill(self.popen.pid, signal.SIGKILL)

    monkeypatch.setattr(pool_module, "VerifierProcess", Doomed)
    with Grader() as grader:
        if when == "idle":
            os.kill(pid_of(grader), signal.SIGKILL)
        verdict = grader.grade([GOOD])[0]
        if when == "start twice":
            assert verdict.correct is None
            assert "cannot start" in verdict.reason
            verdict = grader.grade([GOOD])[0]
        assert verdict.correct is True


def test_no_number_is_infinite_whatever_a_simplification_says():
    """Undecided, math-verify draws numbers and says at times that cosh(oo) is 28: in no process, of any hash seed."""
    code = r"""
from pmdkit.envs.verifier.symbolic import compare
print({compare(span, gold) for gold in ("28", "34", "0.5") for span in (r"\cosh{\infty}", r"e^{\infty}", r"34+\infty")})
"""
    for number in "123":
        environment = {**os.environ, "PYTHONHASHSEED": number}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
        assert done.stdout == "{(False, 'the values differ')}\n"
