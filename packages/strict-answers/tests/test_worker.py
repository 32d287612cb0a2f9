"""What a worker may do: little. Model output is parsed nowhere else: the caller never imports the parser."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from strict_answers import Grader
from strict_answers.process import INHERITED, THREADS


def run(code, **environment):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_worker_is_limited_and_sees_no_secret(monkeypatch):
    """Memory, processor time, files, processes, environment; and no core file of what it held."""
    monkeypatch.setenv("HF_TOKEN", "hf_x")
    with Grader(memory_mb=300) as grader:
        assert grader.probe().correct is True
        proc = Path(f"/proc/{grader.pool.processes[0].popen.pid}")
        limits = {
            name: resource.prlimit(int(proc.name), getattr(resource, name))
            for name in dir(resource)
            if "RLIMIT_" in name
        }
        size = int((proc / "statm").read_text().split()[0]) * resource.getpagesize()
        opened = {os.readlink(link).partition(":")[0] for link in (proc / "fd").iterdir()}
        names = {line.partition("=")[0] for line in (proc / "environ").read_text().split("\0") if line}
    assert size < limits["RLIMIT_AS"][0] <= size + 300 * 2**20
    assert 0 < limits["RLIMIT_CPU"][0] < 60
    assert limits["RLIMIT_FSIZE"] == limits["RLIMIT_NPROC"] == limits["RLIMIT_CORE"] == (0, 0)
    assert limits["RLIMIT_NOFILE"] == (64, 64)
    assert opened <= {"pipe", "/dev/null"}, "nothing of the caller is open in a worker"
    assert names <= {*INHERITED, *THREADS, "PYTHONPATH", "PYTHONSAFEPATH", "PYTHONHASHSEED", "LC_CTYPE"}


@pytest.mark.slow
def test_a_comparison_needs_no_network_no_file_and_no_process():
    """An audit hook ends the process at the first attempt; the answers are those of a worker that may."""
    code = """
import json, os, sys
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
    request = json.dumps({"members": [[["", span]]], "gold": [["", gold]]}).encode()
    print(json.loads(worker.answer(judge, request))["correct"])
"""
    assert run(code).split() == ["True"] * 7 + ["False"]


@pytest.mark.slow
def test_the_caller_never_loads_the_parser():
    code = """
import sys
from strict_answers import Grader, Item, audit
with Grader() as grader:
    items = [Item("Answer: 2^5+2", "34"), Item("Answer: 9^{9^9}", "34"), Item(r"Answer: \\\\frac{1}{2}", "0.5")]
    print([verdict.correct for verdict in grader.grade(items)], audit(items, grader.grade(items)) != [])
print({name.partition(".")[0] for name in sys.modules} & {"sympy", "math_verify", "latex2sympy2_extended", "antlr4"})
"""
    assert run(code).split("\n")[:2] == ["[True, False, True] True", "set()"]
