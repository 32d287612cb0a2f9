"""The code of others under bubblewrap: a class of attackers is graded with honest students, and nothing is achieved.

Every attack goes past Python, by way of the C library, and hands in the list of what it achieved: the verdict shows it.
"""

import contextlib
import csv
import io
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pmdkit.errors import EnvironmentLacks
from pmdkit_course import exercise, sandbox
from pmdkit_course.answers import Code
from pmdkit_course.source import solution_source

PAGE = Path(__file__).parents[3] / "docs" / "teach" / "grading.md"
GRADE = [sys.executable, "-m", "pmdkit", "learn", "grade"]
SECONDS = 2
SOLVED = solution_source(exercise("103.1"))
HONEST = ("ada", "max", "zoe")
QUESTION = exercise("103.2")

try:
    sandbox.require_sandbox()
    WHY = ""
except EnvironmentLacks as lacks:
    WHY = str(lacks)

BEGIN = """
import ctypes, os, signal, sys, time
libc = ctypes.CDLL(None, use_errno=True)
done = []
def tries(name, call):
    try:
        result = call()
    except Exception:
        return
    if result is not None and result is not False and result != -1:
        done.append(name)
"""
END = """
raise ValueError(f"achieved {done}")
def tau_for(*a): ...
"""
NOTHING = "achieved []"
ATTACKS = {  # name: code of the cell
    "fork bomb": """
made = 0
while (pid := libc.fork()) > 0:
    made += 1
if pid == 0:
    libc.setsid()
    while True:
        libc.fork()
        time.sleep(0.1)
if made > 40:
    done.append(f"{made} processes")
""",
    "thief": """
import pmdkit_course, socket
beside = os.path.dirname(sys.executable) + "/new"
for path in (NEIGHBOUR, GRADES, FOLDER + "/new.py", "/usr/new", beside, "/new", "/dev/shm/new", os.__file__):
    tries(f"write {path}", lambda: libc.open(path.encode(), os.O_WRONLY | os.O_CREAT, 0o600))
    tries(f"chmod {path}", lambda: libc.chmod(path.encode(), 0o777))
    tries(f"touch {path}", lambda: libc.utime(path.encode(), None))
course = os.path.dirname(pmdkit_course.__file__)
secrets = ("exercises/lesson_103.py", "exercises/reference_cases.json.gz", "../reference_cases.json.gz", "slips.toml")
secrets += (f"exercises/__pycache__/lesson_103.{sys.implementation.cache_tag}.pyc", "exam.toml", "homework.md")
secrets += ("kit.py",)
secrets = [f"{course}/{name}" for name in (*secrets, "../tests", "../../../tutorials", "../../../tests")]
for path in (NEIGHBOUR, GRADES, SOLUTIONS, FOLDER, "/home", "/etc/passwd", "/root/.bashrc", *secrets):
    tries(f"read {path}", lambda: os.listdir(path) if os.path.isdir(path) else open(path, "rb").read(1))
tries("secrets", lambda: [name for name in os.environ if name == "SECRET"] or None)
if (count := sum(name.isdigit() for name in os.listdir("/proc"))) > 3:
    done.append(f"sees {count} processes")
for address in (("127.0.0.1", PORT), ("192.0.2.1", 80)):
    tries(f"connect {address}", lambda: socket.create_connection(address, 0.5))
""",
    "memory": """
kept = []
try:
    while len(kept) < 3000:
        kept.append(b"x" * 2**20)
except MemoryError:
    pass
if len(kept) > 300:
    done.append(f"{len(kept)} MiB")
del kept
""",
    "loop": """
for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass
while True:
    try:
        while True:
            pass
    except BaseException:
        pass
""",
    "forger": """
import json
for message in ({"value": 1.0}, {"right": True, "says": "Right."}, {"callable": True}):
    for number in range(3, 20):
        try:
            os.write(number, json.dumps(message).encode() + b"\\n")
        except OSError:
            pass
""",
    "writer": """
for number in range(2, 20):
    try:
        while os.write(number, bytes(2**20)):
            pass
    except OSError:
        pass
""",
    "terminal \x1b[2J": "raise ValueError('\\x1b]0;owned\\x07\\x9b2J\\u202e')\n",
}
SAYS = {"loop": "killed by", "forger": "", "writer": "", "terminal \x1b[2J": "owned"}  # all others: NOTHING


def processes(mark):
    """Processes that name a text in their command line or working folder, whatever session they are in."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            named = (folder / "cmdline").read_bytes() + os.readlink(folder / "cwd").encode()
            if str(mark).encode() in named and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


def states(*places):
    """Mode, owner, size and time of change of everything in these folders."""
    found = {path: path.lstat() for place in places for path in (place, *place.rglob("*"))}
    return {str(path): (s.st_mode, s.st_uid, s.st_size, s.st_mtime_ns) for path, s in found.items()}


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """The class, graded once by the command line: its rows, and what there was before and after."""
    if WHY:
        pytest.skip(WHY)
    root = tmp_path_factory.mktemp("class")
    home, folder, temporary = root / "home", root / "submitted", root / "temporary"
    known = {"GRADES": home / "grades.csv", "SOLUTIONS": home / "kit" / "source" / "103.ipynb", "FOLDER": folder}
    for path in (known["GRADES"], known["SOLUTIONS"], temporary / "x"):
        path.parent.mkdir(parents=True)
        path.write_text("mine")
    folder.mkdir()
    for name in HONEST:
        (folder / f"{name}.py").write_text(SOLVED)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        known |= {"NEIGHBOUR": folder / "ada.py", "PORT": listening.getsockname()[1]}
        names = "".join(f"{key} = {value!r}\n" for key, value in known.items()).replace("PosixPath", "str")
        for name, code in ATTACKS.items():
            cell = {"source": names + BEGIN + code + END, "metadata": {"tags": ["exercise", "103.1"]}}
            cells = [{"cell_type": "code", "outputs": [], **cell}]
            (folder / name).mkdir()
            (folder / name / "103.ipynb").write_text(json.dumps({"nbformat": 4, "metadata": {}, "cells": cells}))
        before = states(folder, home)
        variables = os.environ | {"TMPDIR": str(temporary), "HOME": str(home), "SECRET": "x"}
        command = [*GRADE, str(folder), "--csv", "--seconds", str(SECONDS), "--memory-mb", "200"]
        done = subprocess.run(command, capture_output=True, text=True, env=variables, timeout=400)
    assert done.returncode == 0, done.stderr
    rows = {row["student"]: row for row in csv.DictReader(io.StringIO(done.stdout))}
    return {"root": root, "rows": rows, "done": done, "unchanged": before == states(folder, home)}


@pytest.mark.parametrize("student", HONEST)
@pytest.mark.slow
def test_an_honest_student_among_attackers_is_right(graded, student):
    assert graded["rows"][student]["verdict"] == "Right."


@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.slow
def test_an_attack_achieves_nothing(graded, attack):
    row = graded["rows"]["".join(char if char.isprintable() else " " for char in attack)]
    assert row["right"] == "no"
    assert SAYS.get(attack, NOTHING) in row["verdict"]
    assert float(row["seconds"]) < SECONDS + 100, row  # to start a process on a busy machine


@pytest.mark.slow
def test_afterwards_nothing_is_left_nothing_has_changed_and_the_terminal_is_not_steered(graded):
    assert graded["unchanged"]
    assert [path.name for path in (graded["root"] / "temporary").iterdir()] == ["x"]
    assert processes(graded["root"]) == []
    for text in (graded["done"].stdout, graded["done"].stderr):
        assert all(char.isprintable() or char == "\n" for char in text)


@pytest.mark.skipif(bool(WHY), reason=WHY or "bubblewrap runs here")
@pytest.mark.slow
def test_a_killed_grader_leaves_no_process(tmp_path):
    mark = "import time  # " + tmp_path.name
    (tmp_path / "ada.py").write_text(f"{mark}\ndef tau_for(*a):\n    time.sleep(600)\n")
    grader = subprocess.Popen(
        [*GRADE, str(tmp_path), "--seconds", "60"],
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    own = f"{tmp_path}/pmdkit-learn-"
    until = time.monotonic() + 60
    while not processes(own) and time.monotonic() < until:
        time.sleep(0.05)
    assert processes(own)
    grader.kill()
    grader.wait(20)
    until = time.monotonic() + 10
    while (left := processes(own)) and time.monotonic() < until:
        time.sleep(0.02)
    assert left == []


# One's own code, in a plain process.


def code(*lines):
    """A function that answers with these lines."""
    body = "".join(f"    {line}\n" for line in lines)
    return Code(("import os, sys", "import numpy as np"), f"def find_lambda(pi, reward, tau):\n{body}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "value"),
    [
        (code("os._exit(3)"), "code 3"),
        (code("sys.exit(3)"), "SystemExit in line 2"),
        (Code((), "print('x'\n"), "line 1 of the cell"),
        (Code((), "1 / 0"), "The cell itself raised ZeroDivisionError"),
        (Code((), "find_lambda = 0.5"), "float"),
        (code("return np.ones(2 * 10**7)"), "160 MB"),
        (code("x = []", "x.append(x)", "return x"), "contains itself"),
        (code("return helper(pi)"), "no other cell is run"),
        (code("import ctypes", "ctypes.string_at(0)"), "SIGSEGV"),
        (code("import time", "time.sleep(100)"), "0.5 s"),
        (code("return type('T\\x1b[2J', (), {'__repr__': lambda self: '\\x1b[2J'})()"), "\\x1b[2J"),
        (code("print('x' * 10**7)", "return ..."), "Not filled in yet."),
        (Code((), solution_source(QUESTION)), "Right."),
    ],
)
def test_whatever_an_answer_does_there_is_a_sentence(answer, value):
    verdict = sandbox.judge_code(QUESTION, answer, sandboxed=False, seconds=0.5 if "sleep" in answer.cell else None)
    assert value in verdict.says
    assert verdict.says.isprintable()
    assert verdict.right == (value == "Right.")


@pytest.mark.slow
def test_all_that_an_answer_does_is_on_one_clock():
    """Its cell, its own imports, each call: together they take no longer than one of them may."""
    nap = "import time\ntime.sleep(0.5)\ndef find_lambda(pi, reward, tau):\n    time.sleep(0.5)\n    return 1.0\n"
    assert "0.8 s" in sandbox.judge_code(QUESTION, Code((), nap), sandboxed=False, seconds=0.8).says


# Where there is no sandbox.


@pytest.mark.parametrize("lacks", ["bwrap", "namespaces"])
@pytest.mark.slow
def test_without_a_sandbox_grade_refuses_and_check_and_unsafe_go_on(tmp_path, call, capsys, monkeypatch, lacks):
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    if lacks == "bwrap":
        monkeypatch.setattr("shutil.which", lambda name: None)
    else:
        monkeypatch.setattr(sandbox, "bwrap_command", lambda course: ["sh", "-c", "echo no namespaces >&2; exit 1"])
        monkeypatch.setattr("shutil.which", lambda name: name)
    (tmp_path / "ada.py").write_text(SOLVED)
    assert call("learn", "grade", tmp_path) == 3
    assert "--unsafe" in capsys.readouterr().err
    assert call("learn", "grade", tmp_path, "--unsafe", "--csv") == 0
    assert "ada,103.1,yes,Right." in capsys.readouterr().out
    assert call("learn", "check", "103.1", tmp_path / "ada.py") == 0


def test_the_page_shows_the_command_line(monkeypatch):
    """That of an ordinary account: every option and value, but for the folders of this machine."""
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    (block,) = re.findall(r"```\n(bwrap .*?)```", PAGE.read_text(), flags=re.DOTALL)
    shown = shlex.split(block.replace("\\\n", " "))
    used = [word for word in sandbox.bwrap_command("/copy") if "/" not in word]
    assert [word for word in used if word not in shown] == []
    assert [word for word in shown if word.startswith("--") and word not in used] == []
