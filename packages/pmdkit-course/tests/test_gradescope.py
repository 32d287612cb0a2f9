"""The autograder of the kit, unchanged and at its own paths, as root: what an answer writes is worth what it computes.

bubblewrap stands in for Gradescope's container, with /autograder writable and everything in it as setup.sh leaves it.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import pmdkit_course
from pmdkit_course import exercise, sandbox
from pmdkit_course.exercises import of_lesson
from pmdkit_course.grading import ABSENT
from pmdkit_course.source import solution_source

ROOT = Path(__file__).parents[3]
HERE = Path(pmdkit_course.__file__).parent
RIGHT = solution_source(exercise("103.1"))
POINTS = exercise("103.1").difficulty
WHY = "" if shutil.which("bwrap") else "bubblewrap is not installed"
WHY = WHY if os.geteuid() == 0 else "only root can give answers another account"
pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(WHY), reason=WHY or "root runs it here")]

BEGIN = f"""
import importlib, os, sys, time
FULL = '{{"tests": [], "score": 100}}'
COURSE = "/autograder/source/pmdkit/packages/pmdkit-course/pmdkit_course"
done = []
def tries(name, call):
    try:
        done.append((name, call()))
    except Exception:
        pass
def write(path, text):
    with open(path, "w") as file:
        file.write(text)
    return path
def {exercise("103.1").name}(*case):
"""
ATTACKS = {
    "exports": """
    for place in [COURSE, *sys.path]:
        for name in ("/exports.py", "/pmdkit_course/exports.py", "/json.py", "/sitecustomize.py"):
            tries(place + name, lambda: write(place + name, f"print({FULL!r}); raise SystemExit"))
    return 0
""",
    "daemon": """
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                tries("results", lambda: write("/autograder/results/results.json", FULL))
                tries("rows", lambda: [write(f"{at}/rows.json", "[]") for at, _, _ in os.walk("/tmp")])
                time.sleep(0.01)
        os._exit(0)
    return 0
""",
    "solution": """
    sys.path.insert(0, os.path.dirname(COURSE))
    for place in ("pmdkit_course.exercises.", ""):
        sys.path.insert(0, COURSE + "/exercises")
        tries("import", lambda: globals().update(vars(importlib.import_module(place + "lesson" + "_103"))))
    tries("run", lambda: exec(open(COURSE + "/exercises/lesson" + "_103.py").read(), globals()))
    return globals()["EXERCISES"][0].solution(*case)
""",
    "memory": """
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            tries("memory", lambda: open(f"/proc/{name}/mem", "rb").name)
            tries("files", lambda: os.listdir(f"/proc/{name}/fd"))
            tries("end", lambda: os.kill(int(name), 0))
    raise ValueError(f"achieved {done}")
""",
    "reader": """
    for path in ("source", "submission", "results", "source/pmdkit", "source/pmdkit/tutorials"):
        tries(path, lambda: os.listdir("/autograder/" + path))
    for name in ("exam.toml", "homework.md", "exercises/lesson_103.py", "stored.py", "slips.toml"):
        for place in (COURSE, sys.modules["pmdkit_course"].__path__[0]):
            tries(name, lambda: open(f"{place}/{name}").name)
    tries("work", lambda: [at for at, _, files in os.walk("/tmp") if "rows.json" in files][0])
    tries("root", lambda: os.setuid(0))
    raise ValueError(f"achieved {done}")
""",
}


@pytest.fixture(scope="module")
def container(tmp_path_factory):
    """/autograder as setup.sh leaves it, and a function that grades a submission in there."""
    made = tmp_path_factory.mktemp("autograder")
    made.chmod(0o755)
    shutil.copy(HERE / "kit_files" / "gradescope" / "run_autograder", made)
    (made / "run_autograder").chmod(0o755)
    course = Path("source", "pmdkit", "packages", "pmdkit-course")
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copytree(HERE, made / course / "pmdkit_course", ignore=leave)
    shutil.copytree(ROOT / "tutorials", made / "source" / "pmdkit" / "tutorials", ignore=leave)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", made / "venv"], check=True)
    site = next((made / "venv").glob("lib/python*/site-packages"))
    for name in ("pmdkit", "strict_answers", "pmdkit_lab"):
        shutil.copytree(sandbox.folder_of(name), site / name, ignore=leave)
    (site / "beside.pth").write_text(f"{sysconfig.get_paths()['purelib']}\n/autograder/{course}\n")
    (made / "venv" / "bin" / "pmdkit").write_text('#!/bin/sh\nexec /autograder/venv/bin/python -P -m pmdkit "$@"\n')
    (made / "venv" / "bin" / "pmdkit").chmod(0o755)
    places = ["/usr", "/bin", "/lib", "/lib64", "/etc", *{sys.prefix, sys.base_prefix}]
    command = ["bwrap", "--unshare-pid", "--unshare-net", "--die-with-parent", "--proc", "/proc", "--dev", "/dev"]
    command += ["--perms", "1777", "--tmpfs", "/tmp"]
    for parent in sorted({str(parent) for path in places for parent in Path(path).parents} - {"/"}):
        command += ["--perms", "0755", "--dir", parent]
    for path in places:
        command += ["--ro-bind-try", path, path]

    def graded(code):
        for name in ("submission", "results"):
            shutil.rmtree(made / name, ignore_errors=True)
            (made / name).mkdir()
        if code:
            (made / "submission" / "103.py").write_text(code)
        # whoever is left has two seconds to write, and is seen
        left = "grep -ls '^Uid:[[:space:]]*606' /proc/[0-9]*/status"
        wait = f"/autograder/run_autograder; code=$?; sleep 2; ! {left} || exit 99; exit $code"
        variables = {"PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
        bound = ["--bind", str(made), "/autograder", "sh", "-c", wait]
        done = subprocess.run([*command, *bound], env=variables, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not code or "as account 606" in done.stderr
        results = json.loads((made / "results" / "results.json").read_text())
        return sum(test.get("score", 0) for test in results["tests"]), {t["number"]: t for t in results["tests"]}

    return graded


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_is_worth_nothing(container, attack):
    points, tests = container(BEGIN + ATTACKS[attack])
    assert points == 0
    assert list(tests) == [each.id for each in of_lesson("103")]
    assert {tests[number]["output"] for number in tests if number != "103.1"} == {ABSENT}
    if "achieved" in ATTACKS[attack]:
        assert "achieved []" in tests["103.1"]["output"]


def test_a_right_answer_has_its_points_a_wrong_one_none_and_no_answer_none(container):
    points, tests = container(RIGHT)
    assert (points, tests["103.1"]["output"]) == (POINTS, "Right.")
    assert container("def {}(*case):\n    return 0.5\n".format(exercise("103.1").name))[0] == 0
    points, tests = container("")
    assert (points, {test["output"] for test in tests.values()}) == (0, {ABSENT})
