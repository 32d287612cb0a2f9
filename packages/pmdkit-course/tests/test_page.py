"""The judge of the site's pages, from the zip that the pages load, in a Python that has NumPy and SciPy alone."""

import json
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from generate.exercises import write_judge

from pmdkit_course import check, exercise, ids
from pmdkit_course.source import solution_source

pytestmark = pytest.mark.slow
RUNNER = """
import json, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        allowed = sys.stdlib_module_names | {"numpy", "scipy", "pmdkit", "pmdkit_course"}
        if name == "resource" or name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
sys.path.insert(0, sys.argv[1])
from pmdkit_course import page
for which, cell, stopped in json.load(sys.stdin):
    sent = []
    told = page.check(which, cell, lambda *message: sent.append(message), stopped)
    print(json.dumps([page.packages(which, cell), told, sent]))
"""


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """`judged((which, cell, stopped), ...)`: of each the packages, the verdict as HTML and the messages."""
    folder = tmp_path_factory.mktemp("judge")
    write_judge(folder / "judge.zip", Path(__file__).parents[3])
    zipfile.ZipFile(folder / "judge.zip").extractall(folder)

    def ask(*questions):
        command = [sys.executable, "-I", "-c", RUNNER, str(folder)]
        done = subprocess.run(command, input=json.dumps(questions), capture_output=True, text=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    return ask


def test_every_solution_is_right_but_for_those_with_tensors(judged):
    cells = {
        which: solution_source(exercise(which)) for which in ids() if which not in ("201.0", "201.1", "202.0", "203.0")
    }
    found = dict(zip(cells, judged(*((which, cell, None) for which, cell in cells.items())), strict=True))
    assert {which: told for which, (_, told, _) in found.items() if "Right." not in told} == {}
    for which, (packages, _, _) in found.items():
        assert packages == ["scipy"] * ("scipy" in cells[which] or "pmdkit" in cells[which])


def test_a_wrong_answer_gets_the_words_of_the_notebook(judged):
    cell = "def tau_for(p, eta):\n    return -p / np.log1p(-eta) ** 2\n"  # np is the lesson's
    exec(cell, names := {"np": np})
    ((_, told, _),) = judged(("103.1", cell, None))
    assert told.startswith(check("103.1", names["tau_for"])._repr_html_().partition("<br>")[0])
    assert "Not yet." in told
    assert told.count("<summary>") == len(exercise("103.1").hints)


def test_a_stopped_answer_is_judged_by_what_it_has_done(judged):
    cell = solution_source(exercise("101.2"))
    ((_, _, sent),) = judged(("101.2", cell, None))
    (first, *replies, last) = sent
    assert (first, last) == (["clock", exercise("101.2").deadline], ["clock", 0])
    replies = [text for kind, text in replies if kind == "reply"]
    found = [told for _, told, _ in judged(*(("101.2", cell, replies[:n]) for n in (0, -1)))]
    assert all("endless loop" in told and "20 s" in told for told in found)
    assert "The cell itself" in found[0]
    assert f"Its {len(replies) - 2} other answers are right" in found[1]


def test_the_signal_of_the_page_stops_an_answer_and_its_python_judges_the_next(judged):
    """A bare `except:` does not hold it for long: the page sends it again."""
    slow = "import signal\ndef tau_for(p, eta):\n    try: signal.raise_signal(signal.SIGINT)\n    except: pass\n"
    again = slow + "    signal.raise_signal(signal.SIGINT)\n"
    right = solution_source(exercise("103.1"))
    stopped, next_one = (told for _, told, _ in judged(("103.1", again, None), ("103.1", right, None)))
    assert "endless loop" in stopped
    assert "Right." in next_one
