"""The judge of the site's pages, from the zip that the pages load, in a Python that has NumPy and SciPy alone."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pmdkit_course import check
from pmdkit_course.exercises import exercise, ids
from pmdkit_course.source import solution_source

ROOT = Path(__file__).parents[3]
DRIVER = """
import importlib.abc, json, os, sys

class Browser(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        allowed = sys.stdlib_module_names | {"numpy", "scipy", "pmdkit", "pmdkit_course"}
        if name == "resource" or name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Browser())
sys.path.insert(0, sys.argv[1])
from pmdkit_course import page
assert page.__file__.startswith(sys.argv[1])
assert "scipy" not in sys.modules
for which, cell, stopped in json.load(sys.stdin):
    sent = []
    needed = page.packages(which, cell)
    told = page.check(which, cell, lambda *message: sent.append(message), stopped)
    print(json.dumps([needed, told, sent]))
"""


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """`judged([(which, cell, stopped), ...])`: packages, verdict as HTML and messages of each."""
    folder = tmp_path_factory.mktemp("judge")
    unpack = f"""
import sys, zipfile; from pathlib import Path; sys.path.insert(0, {str(ROOT / "docs")!r})
from generate.exercises import write_judge
write_judge(Path("judge.zip"), Path({str(ROOT)!r})); zipfile.ZipFile("judge.zip").extractall("judge")"""
    subprocess.run([sys.executable, "-c", unpack], cwd=folder, check=True)

    def ask(questions):
        command = [sys.executable, "-I", "-c", DRIVER, str(folder / "judge")]
        done = subprocess.run(command, input=json.dumps(questions), capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return ask


@pytest.mark.slow
def test_every_solution_is_right_but_for_those_with_tensors(judged):
    tensors = ["201.1", "201.2"]
    asked = [which for which in ids() if which not in tensors]
    found = judged([(which, solution_source(exercise(which)), None) for which in asked])
    assert {which: told for which, (_, told, _) in zip(asked, found, strict=True) if "Right." not in told} == {}
    solutions = {which: solution_source(exercise(which)) for which in asked}
    needed = {which for which, source in solutions.items() if "scipy" in source or "pmdkit" in source}
    assert {which for which, (packages, *_) in zip(asked, found, strict=True) if packages} == needed


@pytest.mark.slow
def test_the_verdict_is_that_of_the_notebook(judged):
    """The solution with its sign turned: a recognised slip or not, the words are those of `check`."""
    cell = "def tau_for(p, eta):\n    return -p / np.log1p(-eta)**2\n"
    names = {}
    exec("import numpy as np\n" + cell, names)
    ((packages, told, sent),) = judged([("103.1", cell, None)])
    verdict = check("103.1", names["tau_for"])
    assert told.startswith(verdict._repr_html_().partition("<br>")[0])
    assert told.count("<summary>") == len(exercise("103.1").hints)
    assert not verdict.right
    assert packages == []
    assert sent[0] == ["clock", exercise("103.1").deadline]
    assert sent[-1] == ["clock", 0]


@pytest.mark.slow
def test_a_stopped_answer_is_judged_by_what_it_has_done(judged):
    """The cell counts alone; then the replies, and the words say how long it had."""
    cell = solution_source(exercise("101.2"))
    ((_, _, sent),) = judged([("101.2", cell, None)])
    replies = [text for kind, text in sent if kind == "reply"]
    found = judged([("101.2", cell, replies[:n]) for n in (0, 1, -1)])
    assert ["cell itself" in told for _, told, _ in found] == [True, False, False]
    assert all("endless loop" in told and "20 s" in told for _, told, _ in found)
    assert f"Its {len(replies) - 2} other answers are right" in found[2][1]
