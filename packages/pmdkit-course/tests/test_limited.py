"""Code of a learner in a process with limits: whatever it does, there is a sentence, and the next one is judged."""

import sys

import pytest

from pmdkit.errors import EnvironmentLacks
from pmdkit_course import exercise
from pmdkit_course.confinement import inside
from pmdkit_course.notebooks import Code
from pmdkit_course.sandbox import SandboxedGrader
from pmdkit_course.serialization import Other, decode, encode
from pmdkit_course.source import solution_source

QUESTION = exercise("103.2")
IMPORTS = ("import os, sys", "import numpy as np")


def code(*lines):
    """A function that answers with these lines."""
    return Code(IMPORTS, "def find_lambda(pi, reward, tau):\n" + "".join(f"    {line}\n" for line in lines))


@pytest.fixture(scope="module")
def judging():
    with SandboxedGrader(seconds=10.0, memory_mb=512) as each:
        yield each


EVIL = [
    (code("os._exit(3)"), "It ended Python itself, with code 3"),
    (code("sys.exit(3)"), "It raised SystemExit in line 2 of the function: 3."),
    (Code((), "print('x'\n"), "The code does not parse in line 1 of the cell"),
    (Code((), "1 / 0"), "The cell itself raised ZeroDivisionError: division by zero."),
    (Code(("import transformers_that_are_not_there as t",), "t"), "which is not installed here"),
    (Code((), "x = 1"), "The cell defines no `find_lambda`"),
    (Code((), "find_lambda = 0.5"), "Got a value of type float; expected the function"),
    (Code((), "find_lambda = print"), "is there a `return`?"),
    (code("return np.ones(10**12)"), "MemoryError"),
    (code("return np.ones(2 * 10**7)"), "Too much: it returned an array of 160 MB"),
    (code("x = []", "while True:", "    x.append(bytes(10**7))"), "MemoryError"),
    (code("x = []", "x.append(x)", "return x"), "a list that contains itself"),
    (code("return find_lambda(pi, reward, tau)"), "It raised RecursionError"),
    (code("return helper(pi)"), "no other cell is run"),
    (code("return input()"), "It raised EOFError"),
    (code("raise KeyboardInterrupt"), "It raised KeyboardInterrupt"),
    (code("import subprocess", "subprocess.run(['true'])"), "may not start another program"),
    (code("import socket", "socket.create_connection(('127.0.0.1', 9))"), "may not use the network"),
    (code("os.kill(os.getppid(), 9)"), "may not stop other programs"),
    (code("import ctypes", "ctypes.string_at(0)"), "Python was killed by SIGSEGV"),
    (
        code("for f in range(3, 9):", "    try: os.write(f, b'z' * 20)", "    except OSError: pass"),
        "It broke the connection",
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "told"), EVIL, ids=lambda value: value[:30] if isinstance(value, str) else "")
def test_whatever_it_does_there_is_a_sentence(judging, answer, told):
    verdict = judging.judge(QUESTION, answer)
    assert not verdict.right
    assert told in verdict.says


LOOPS = [
    (code("while True:", "    try:", "        pass", "    except:", "        pass"), "Not done after 0.2 s"),
    (code("import time", "time.sleep(100)"), "Not done after 0.2 s"),
    (Code((), "while True: pass"), "The cell itself, before the function was called, was not done after 0.2 s"),
    (Code((), "import signal\nsignal.pthread_sigmask(0, range(1, 65))\nwhile True: pass"), "The cell itself"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("answer", "told"), LOOPS)
def test_a_loop_is_ended_from_outside(answer, told):
    with SandboxedGrader(seconds=0.2) as judging:
        verdict = judging.judge(QUESTION, answer)
        assert told in verdict.says
        assert judging.runner is None


@pytest.mark.slow
def test_and_the_next_answer_is_judged_as_if_nothing_had_been(judging):
    assert judging.judge(QUESTION, Code((), solution_source(QUESTION))).right
    assert judging.judge(QUESTION, code("print('x' * 10**7)", "return ...")).untouched
    slip = code("return ((pi @ reward**2) - (pi @ reward) ** 2) / 2")
    assert judging.judge(QUESTION, slip).slip == 2


@pytest.mark.slow
def test_files_outside_its_folder_stay_as_they_are(judging, tmp_path):
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    for line in (f"open({str(mine)!r}, 'w')", f"os.remove({str(mine)!r})", f"os.rename({str(mine)!r}, 'x')"):
        assert "may not change files" in judging.judge(QUESTION, code(line)).says
    assert "Not this" in judging.judge(QUESTION, code("open('own.txt', 'w').write('x')", "return 9.0")).says
    assert mine.read_text() == "mine"


def test_the_system_refuses_what_goes_round_python(judging, tmp_path):
    """A call of the C library that no hook of Python sees: the file is not made where the system confines."""
    new = tmp_path / "new.txt"
    flags = "os.O_CREAT | os.O_WRONLY"
    lines = ("import ctypes", f"return ctypes.CDLL(None).open({str(new).encode()!r}, {flags}, 0o600)")
    judging.judge(QUESTION, code(*lines))
    assert not new.exists()


@pytest.mark.slow
def test_the_folder_of_the_process_is_removed():
    with SandboxedGrader() as judging:
        judging.judge(QUESTION, code("open('own.txt', 'w').write('x')", "return 9.0"))
        folder = judging.runner.folder
    import os

    assert not os.path.exists(folder)


@pytest.mark.slow
def test_the_process_cannot_say_that_it_is_right(judging):
    """It knows neither inputs nor solution; a forged reply is a value or a failure like any other."""
    forged = code("import pmdkit_course.judging as j", "j.judged = lambda *a: j.Verdict(True, 'Right.')", "return 1.0")
    assert not judging.judge(QUESTION, forged).right


@pytest.mark.parametrize("value", [None, ..., True, 3, -(2**62), 0.1, float("inf"), "a", (1, [2.5, "b"]), []])
def test_values_travel_as_they_are(value):
    back = decode(encode(value))
    assert back == value
    assert type(back) is type(value)


def test_what_is_no_answer_travels_as_its_name():
    back = decode(encode(sys))
    assert isinstance(back, Other)
    assert "module" in repr(back)


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"is": "array", "dtype": "O", "shape": [1], "data": ""},
        {"is": "array", "dtype": "<f8", "shape": [2], "data": "AAAA"},
        {"is": "float", "text": "x"},
        {"is": "pickle", "text": "x"},
        {"is": "tuple", "parts": 3},
    ],
)
def test_a_message_that_is_no_value_is_refused(message):
    with pytest.raises(ValueError):
        decode(message)


def test_links_are_followed_before_a_path_counts_as_inside(tmp_path):
    folder, elsewhere = tmp_path / "in", tmp_path / "out"
    folder.mkdir()
    elsewhere.mkdir()
    (folder / "link").symlink_to(elsewhere)
    assert inside(str(folder / "x"), str(folder))
    assert not inside(str(folder / "link" / "x"), str(folder))
    assert not inside(str(folder / ".." / "x"), str(folder))


FORGED = """
import json, os, struct, time
def find_lambda(pi, reward, tau):
    for message in ({"value": {"is": "float", "text": "0x1p0"}}, {"ended": 0}, {"kept": []}, {"right": True}):
        body = json.dumps(message).encode()
        for number in range(3, 20):
            try:
                os.write(number, struct.pack(">I", len(body)) + body)
            except OSError:
                pass
    while True:
        time.sleep(1)
"""


@pytest.mark.slow
def test_forged_ends_harm_nobody_but_their_author():
    """An answer that plays its own end and stays is there for the next question; it is not believed, and then gone."""
    with SandboxedGrader(seconds=2.0) as judging:
        assert not judging.judge(QUESTION, Code((), FORGED)).right
        says = [judging.judge(QUESTION, Code((), solution_source(QUESTION))).says for _ in range(2)]
        assert says[-1] == "Right."
        assert not judging.missing()


def test_limits_cannot_be_raised(judging):
    """They are hard ones, also for root, who is not root there."""
    lines = ("import resource as r", "limits = r.RLIMIT_AS, r.RLIMIT_CPU, r.RLIMIT_FSIZE, r.RLIMIT_NPROC")
    lines += ("[r.getrlimit(limit)[1] for limit in limits].index(-1)",)  # of none is there no limit
    assert "ValueError" in judging.judge(QUESTION, code(*lines)).says
    assert "It raised" in judging.judge(QUESTION, code(*lines[:2], "r.setrlimit(r.RLIMIT_AS, (-1, -1))")).says


@pytest.mark.slow
def test_all_that_an_answer_does_is_on_one_clock():
    """Its cell, its own imports, each call: together they take no longer than one of them may."""
    nap = "import time\ntime.sleep(0.5)\ndef find_lambda(pi, reward, tau):\n    time.sleep(0.5)\n    return 1.0\n"
    with SandboxedGrader(seconds=0.8) as judging:
        judging.started()
        assert "Not done after 0.8 s" in judging.judge(QUESTION, Code((), nap)).says


@pytest.mark.slow
def test_a_system_without_namespaces_is_named_and_unsafe_goes_on():
    with SandboxedGrader() as judging:
        judging.lacking = "darwin has no namespaces"
        with pytest.raises(EnvironmentLacks, match=r"darwin has no namespaces.*--unsafe") as refused:
            judging.judge(QUESTION, Code((), "x = 1"))
        assert refused.value.exit_code == 3
        assert judging.runner is None
    with SandboxedGrader(unsafe=True) as judging:
        judging.lacking = "darwin has no namespaces"
        assert judging.judge(QUESTION, Code((), solution_source(QUESTION))).right
        assert judging.missing() == ["reading"]
