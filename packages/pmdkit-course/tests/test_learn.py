"""`pmdkit learn`: what its commands find, print and keep, with their exit codes; and which code of a file counts."""

import csv
import io
import json
import os

import numpy as np
import pytest

import pmdkit_course as learn
from pmdkit.errors import UsageError
from pmdkit_course import grading, lesson_files
from pmdkit_course.answers import answer_to, exercises_in
from pmdkit_course.exercises import AnswerVerdict
from pmdkit_course.notebooks import read
from pmdkit_course.source import solution_source

QUESTION = learn.exercise("103.2")
RIGHT = solution_source(learn.exercise("103.1"))
START = "def find_lambda(pi, reward, tau):\n    return ..."
FUNCTION = "def find_lambda(pi, reward, tau):\n    return np.var(reward)"
TAGS = ["exercise", "103.2"]


def notebook(path, *cells):
    """Write a notebook of code cells: (source, tags)."""
    found = [{"cell_type": "code", "source": s, "metadata": {"tags": tags}, "outputs": []} for s, tags in cells]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": found}))
    return path


@pytest.fixture
def lesson(tmp_path):
    """A lesson's notebook in tutorials/, its first exercise solved and its second not touched."""
    return notebook(tmp_path / "tutorials" / "103_name.ipynb", (RIGHT, ["exercise", "103.1"]), (START, TAGS))


def test_start_copies_the_lessons_and_overwrites_nothing(tmp_path, call):
    """From the checkout here; a wheel has them inside the package (pyproject.toml)."""
    assert call("learn", "start", tmp_path / "mine") == 0
    assert len(list((tmp_path / "mine").glob("*.ipynb"))) == len(list(lesson_files.shipped().glob("*.ipynb"))) > 0
    for path in (tmp_path / "mine").iterdir():
        assert path.read_bytes() == (lesson_files.shipped() / path.name).read_bytes()
    cells = read(tmp_path / "mine" / "103_hidden_regulariser.ipynb")
    assert QUESTION.id in [e.id for e in exercises_in(cells, [learn.exercise(which) for which in learn.ids()])]
    assert call("learn", "start", tmp_path / "mine") == 2


def test_list_show_hint_and_solution(call, capsys):
    assert call("learn", "list", "--json") == 0
    entries = json.loads(capsys.readouterr().out)
    assert [e["id"] for e in entries] == learn.ids()
    assert entries[0].keys() >= {"id", "lesson", "title", "difficulty", "minutes", "function"}
    for words, value in (
        (("list",), "103.2"),
        (("show", "103.2"), "def find_lambda(pi, reward, tau):"),
        (("hint", "103.2", 2), QUESTION.hints[1]),
        (("solution", "103.2"), learn.solution("103.2")),
    ):
        assert call("learn", *words) == 0
        assert " ".join(value.split()) in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_check_leaves_with_0_if_all_is_right_and_with_4_if_not(lesson, call, capsys):
    assert call("learn", "check", "103.1") == 0
    assert capsys.readouterr().out == "103.1  Right.\n"
    lesson.with_suffix(".py").write_text("# %%\n")  # the folder of a checkout has both
    for arguments in ((lesson,), ("--all",)):
        assert call("learn", "check", *arguments, "--json") == 4
        verdicts = json.loads(capsys.readouterr().out)
        assert [(v["exercise"], v["right"]) for v in verdicts] == [("103.1", True), ("103.2", False)]
    assert call("learn", "check", "103") == 4  # 103.3 is not in the file


USAGE = """check
check 103.9
check 103.1 none.py
check 103.1 b.py --all
hint 103.2 --step 9
grade nowhere
grade tutorials --csv --json
grade tutorials --seconds 0
course --out kit --lessons empty
course --out kit --only 104x
course --out tutorials"""


def test_a_folder_without_answers_has_a_code_of_its_own(tmp_path, call):
    assert call("learn", "grade", tmp_path) == 8


@pytest.mark.parametrize("words", USAGE.splitlines())
def test_wrong_usage_leaves_with_2_and_nothing_behind(lesson, tmp_path, call, words):
    (tmp_path / "empty").mkdir()
    assert call("learn", *words.split()) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"empty", "tutorials"}


# Which code of a file counts.


def test_the_cell_and_the_imports_it_uses_are_taken(tmp_path):
    cells = read(
        notebook(
            tmp_path / "a.ipynb",
            ("%matplotlib inline\nimport numpy as np, sys\nimport matplotlib.pyplot as plt\nx = 1 / 0", []),
            ("import time\nwhile True: time.sleep(1)", []),
            (f"%%time\n!pip list\n{FUNCTION}", TAGS),
        )
    )
    assert exercises_in(cells, [QUESTION]) == [QUESTION]
    code = answer_to(QUESTION, cells)
    assert code.imports == ("import numpy as np, sys",)
    assert code.cell == f"pass\npass\n{FUNCTION}"  # line numbers stay


def test_a_split_cell_counts_whole_and_a_cell_without_tags_is_found_by_name(tmp_path):
    split = read(notebook(tmp_path / "a.ipynb", ("half = 0.5", TAGS), (FUNCTION, TAGS)))
    assert answer_to(QUESTION, split).cell == f"half = 0.5\n{FUNCTION}"
    lost = read(notebook(tmp_path / "b.ipynb", ("def find_lambda(): ...", []), (FUNCTION, []), ("y = 2", [])))
    assert answer_to(QUESTION, lost).cell == FUNCTION
    broken = read(notebook(tmp_path / "c.ipynb", ("def find_lambda(pi:\n    return (", [])))
    assert answer_to(QUESTION, broken) is not None


def test_a_plain_file_is_one_cell_and_one_with_marks_has_many(tmp_path):
    plain, marked = tmp_path / "a.py", tmp_path / "b.py"
    plain.write_text(f"import numpy as np\n{FUNCTION}\n")
    marked.write_text(f'# %%\nimport numpy as np\n1 / 0\n\n# %% tags=["exercise", "103.2"]\n{FUNCTION}\n')
    assert answer_to(QUESTION, read(plain)).cell == plain.read_text()
    assert answer_to(QUESTION, read(marked)).cell.strip() == FUNCTION
    assert answer_to(learn.exercise("103.1"), read(plain)) is None


def test_a_helper_of_another_cell_counts_with_what_it_uses(tmp_path):
    """As in the notebook: the last definition before the cell; what a cell computes is not run."""
    cells = read(
        notebook(
            tmp_path / "a.ipynb",
            ("import numpy as np\nfrom pmdkit import train", []),
            ("def spread(x):\n    return 1 / 0", []),
            ("TWO = 2\nHALF = 1 / TWO\nruns = [train() for _ in range(9)]", []),
            ("def spread(x):\n    return centred(x) @ centred(x) / len(x)\n\nprint(spread(np.ones(3)))", []),
            ("def find_lambda(pi, reward, tau):\n    return spread(reward) * HALF", TAGS),
            ("def centred(x):\n    return x - np.mean(x)\n\ndef unused():\n    pass", []),
        )
    )
    code, names = answer_to(QUESTION, cells), {}
    exec("\n".join([*code.imports, *code.helpers, code.cell]), names)
    assert names["find_lambda"](None, np.array([0.0, 2.0]), 1.0) == 0.5
    assert not {"runs", "unused", "train"} & set(names)


NO_NOTEBOOKS = [
    ("a.ipynb", b"{"),
    ("a.ipynb", b"[]"),
    ("a.ipynb", b'{"nbformat": 3, "cells": []}'),
    ("a.ipynb", b'{"nbformat": 4, "cells": [{"cell_type": "code", "source": 3}]}'),
    ("a.ipynb", b'{"a":' + b"[" * 10**5),
    ("a.py", b"\xff\xfe\x00"),
    ("a.py", b"x = 1\n" * 30_000),
    ("a.py", b"# ---\n# jupyter:\n#   jupytext: 3\n# ---\n# %%\nx = 1\n"),
    ("a.txt", b""),
    ("none.py", None),
]


@pytest.mark.parametrize(("name", "content"), NO_NOTEBOOKS)
def test_what_is_no_notebook_is_refused(tmp_path, name, content):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError):
        read(tmp_path / name)


def test_only_regular_files_of_bounded_size_are_read(tmp_path):
    """A pipe would wait for a writer for ever, a device has no end, and a link leads anywhere."""
    pipe, link, device, large = (tmp_path / f"{name}.py" for name in ("pipe", "link", "device", "large"))
    os.mkfifo(pipe)
    link.symlink_to(__file__)
    device.symlink_to("/dev/zero")
    with large.open("wb") as file:
        file.truncate(2**27)  # takes no room
    for path, links in ((pipe, True), (device, True), (link, False), (large, True)):
        with pytest.raises(UsageError):
            read(path, links=links)
    assert read(link)


# A folder of submissions.


def test_every_layout_is_found_and_everybody_has_a_line_for_every_exercise(tmp_path):
    """A folder each, nbgrader's two, a file of its own. Links and hidden files do not count, the better file does."""
    first, second = ("def tau_for(): 'right'", ["exercise", "103.1"]), ("def find_lambda(): 'wrong'", TAGS)
    notebook(tmp_path / "ada" / "103.ipynb", first, second)
    imported = ("from pmdkit_course.exercises import lesson_103 as L", [])
    cheating = ("def tau_for(p, eta): return L.tau_for(p, eta)  # right", ["exercise", "103.1"])
    notebook(tmp_path / "bob" / "103_hidden_regulariser" / "103.ipynb", imported, cheating)
    (tmp_path / "=cmd.py").write_text("def find_lambda(): 'right'")
    (tmp_path / "jon").mkdir()
    (tmp_path / "jon" / "103.ipynb").write_text("{ torn")
    (tmp_path / "jon" / "a.py").write_text("def tau_for(): 'wrong'")
    (tmp_path / "jon" / "b.py").write_text("def tau_for(): 'right'")
    notebook(tmp_path / ".hidden" / "103.ipynb", first)
    (tmp_path / "mia").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "ada")

    def judge(exercise, code):
        right = "right" in code.cell
        return AnswerVerdict(right, f"right: {right}")

    known = [learn.exercise(which) for which in learn.ids()]
    rows = grading.grade(grading.submissions(tmp_path), known, judge)
    found = [f"{row.student} {row.exercise.removeprefix('103.')} {'right' if row.right else '-'}" for row in rows]
    assert found[:6] == ["=cmd 1 -", "=cmd 2 right", "ada 1 right", "ada 2 -", "bob 1 right", "bob 2 -"]
    assert found[6:] == ["jon  -", "jon 1 right", "jon 2 -", "mia 1 -", "mia 2 -"]
    assert [row.student for row in rows if grading.LOOK in row.verdict] == ["bob"]
    table = list(csv.reader(io.StringIO(grading.to_csv(rows))))
    assert table[0] == ["student", "exercise", "right", "verdict", "seconds"]
    assert table[1][0] == "'=cmd"
    assert "5 students, 2 exercises: 4 right, 1 wrong, 5 not handed in, 1 files not read" in grading.summary(rows)


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@sum", " =1", "\t=1", "\n+1", "Ada O'Neil-Ng"])
def test_a_name_is_no_formula(name):
    found = grading.harmless(name)
    assert found == name if name[0] == "A" else found.startswith("'")
    assert "\n" not in found
