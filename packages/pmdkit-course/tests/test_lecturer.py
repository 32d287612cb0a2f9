"""The lecturer's half-semester: exam answers are computed twice, slides and syllabus come from the lessons."""

import csv
import io
import json
import math
import re
import tomllib
from pathlib import Path

import nbformat
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import lambertw

import pmdkit_course as learn
from pmdkit import theory
from pmdkit.errors import UsageError
from pmdkit_course import exports, lesson_files
from pmdkit_course.exercises import lessons, of_lesson
from pmdkit_course.grading import ABSENT
from pmdkit_course.kit import exam, syllabus, weeks
from pmdkit_course.nbgrader import open_lesson
from pmdkit_course.slides import week_of_slides

HERE = Path(learn.__file__).parent
QUESTIONS = tomllib.loads((HERE / "exam.toml").read_text(encoding="utf-8"))["question"]
BY_HAND = {name: getattr(math, name) for name in ("e", "exp", "log", "sqrt", "pi", "ceil")}
BY_HAND |= {"brentq": brentq, "lambertw": lambertw, "stats": stats, "sum": sum, "range": range}


@pytest.mark.parametrize("asked", QUESTIONS, ids=lambda asked: f"{asked['week']}-{asked['question'][:30]}")
def test_an_exam_answer_is_what_two_computations_say(asked):
    """The printed digits agree with the formula of the answer and with pmdkit.theory, which share no code."""
    (printed,) = re.findall(r"\*\*([-\d.e]+)\*\*", asked["answer"])
    by_hand = float(eval(asked["by_hand"], {"__builtins__": {}} | BY_HAND))
    again = float(eval(asked["theory"], {"theory": theory, "np": np, "stats": stats, "brentq": brentq, "quad": quad}))
    assert by_hand == pytest.approx(again, rel=2e-4)
    digits = len(re.sub(r"e.*|[-.]", "", printed).lstrip("0"))
    for value in (by_hand, again):
        assert float(f"{value:.{digits}g}") == pytest.approx(float(printed), rel=1e-9), value


def test_the_bank_has_thirty_questions_and_every_week_some():
    assert len(QUESTIONS) == len({asked["question"] for asked in QUESTIONS}) == 30
    assert {asked["week"] for asked in QUESTIONS} == set(range(1, len(weeks()) + 1))
    text = exam()
    assert all(asked["question"] in text and asked["answer"] in text for asked in QUESTIONS)


def test_every_lesson_after_the_first_has_a_week_and_every_session_an_objective():
    assert [each for week in weeks() for each in week["lessons"]] == [number for number in lessons() if number != "100"]
    rows = syllabus("L{0}").splitlines()[2:]
    assert len(rows) == 14
    assert all(row.count(" | ") == 3 for row in rows)
    assert "L103, L104" in rows[2]


def test_slides_have_every_picture_and_keep_the_prose_for_the_notes():
    own = [open_lesson(path) for path in sorted(lesson_files.shipped().glob("10[12]_*.py"))]
    week = week_of_slides("Week 1", own)
    nbformat.validate(week)
    kinds = [cell.metadata["slideshow"]["slide_type"] for cell in week.cells]
    drawn = [i for i, cell in enumerate(week.cells) if "plt.show()" in cell.source]
    assert len(drawn) == sum("plt.show()" in cell.source for lesson in own for cell in lesson.cells)
    for i in drawn:
        assert kinds[i - 1 : i + 1] == ["slide", "-"]
        assert (kinds[i + 1], week.cells[i + 1].source[:17]) == ("notes", "**What to see.** ")
    code = [[cell.source for cell in each.cells if cell.cell_type == "code"] for each in (week, *own)]
    assert code[0] == code[1] + code[2]  # in order: the slides run as the lessons do
    assert not any("<!--" in cell.source for cell in week.cells)


ROWS = [
    {"student": "ada", "exercise": "103.1", "right": True, "verdict": "Right.", "seconds": 0.5},
    {"student": "ada", "exercise": "103.2", "right": False, "verdict": "Not this.", "seconds": 0.5},
    {"student": "ada", "exercise": "", "right": False, "verdict": "b.py is a link.", "seconds": 0.0},
]


FIELDS = {
    "score", "max_score", "status", "name", "name_format", "number", "output", "output_format", "tags", "visibility",
    "extra_data",
}  # fmt: skip
"""Of a test in results.json, as gradescope-autograders.readthedocs.io/en/latest/specs had them in January 2025."""


def piped(monkeypatch, rows, *words):
    monkeypatch.setattr("sys.stdin", io.StringIO(rows if isinstance(rows, str) else json.dumps(rows)))
    return exports.main(words)


def test_gradescope_reads_points_and_sentences(monkeypatch):
    found = json.loads(piped(monkeypatch, ROWS, "gradescope", "103"))
    asked = of_lesson("103")
    assert [test["number"] for test in found["tests"]] == [each.id for each in asked]
    assert [test["max_score"] for test in found["tests"]] == [each.difficulty for each in asked]
    said = {"103.1": "Right.", "103.2": "Not this."}
    right = [each.id == "103.1" for each in asked]
    assert [test["score"] for test in found["tests"]] == [
        r * each.difficulty for r, each in zip(right, asked, strict=True)
    ]
    assert [test["status"] for test in found["tests"]] == ["passed" if each else "failed" for each in right]
    assert [test["output"] for test in found["tests"]] == [said.get(each.id, ABSENT) for each in asked]
    assert found["output"] == "b.py is a link."
    assert all(test.keys() <= FIELDS and isinstance(test["number"], str) for test in found["tests"])
    visible = {"hidden", "after_due_date", "after_published", "visible"}
    assert {found["stdout_visibility"], *(test["visibility"] for test in found["tests"])} <= visible
    nothing = json.loads(piped(monkeypatch, [], "gradescope", "103.1"))
    assert (nothing["tests"][0]["score"], nothing["tests"][0]["output"]) == (0, ABSENT)


def test_nbgraders_columns_have_a_line_for_each_lesson_and_student(monkeypatch):
    other = {"student": "=bob", "exercise": "102.1", "right": True, "verdict": "Right.", "seconds": 1}
    rows = list(csv.DictReader(io.StringIO(piped(monkeypatch, [*ROWS, other], "nbgrader", "102", "103"))))
    assert [(row["assignment"], row["student_id"]) for row in rows] == [
        (lesson, student) for lesson in ("102_one_step", "103_hidden_regulariser") for student in ("ada", "'=bob")
    ]
    assert [float(row["score"]) for row in rows] == [
        0, learn.exercise("102.1").difficulty, learn.exercise("103.1").difficulty, 0,
    ]  # fmt: skip
    assert {float(row["max_score"]) for row in rows[2:]} == {sum(each.difficulty for each in of_lesson("103"))}


@pytest.mark.parametrize(
    "words", [(), ("moodle", "103"), ("gradescope",), ("gradescope", "999"), ("gradescope", "103")]
)
def test_what_cannot_be_exported_is_refused(monkeypatch, words):
    with pytest.raises(UsageError):
        piped(monkeypatch, "not JSON" if len(words) == 2 else ROWS, *words)
    with pytest.raises(UsageError):
        exports.gradescope([*ROWS, ROWS[0] | {"student": "bob"}], of_lesson("103"))
