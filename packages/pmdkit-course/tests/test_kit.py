"""The instructor's kit: what students get has no solution, what instructors get passes, and nothing is overwritten."""

import ast
import gzip
import json
import os
import re
from pathlib import Path

import nbformat
import pytest

import pmdkit_course as learn
from pmdkit.errors import EnvironmentLacks
from pmdkit_course import exercises, stored
from pmdkit_course.exercises import of_lesson
from pmdkit_course.notebooks import parsed

TUTORIALS = Path(__file__).parents[3] / "tutorials"
STEM = next(TUTORIALS.glob("103_*.py")).stem
ROLES = ("grade", "solution", "locked", "task")


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    """The kit of one lesson."""
    from pmdkit_course.kit import build

    out = tmp_path_factory.mktemp("course") / "kit"
    build(out, ["103"], TUTORIALS)
    return out


def opened(kit, part):
    notebook = nbformat.read(kit / part / STEM / f"{STEM}.ipynb", as_version=4)
    nbformat.validate(notebook)
    return notebook


def roles(notebook):
    """The cells that nbgrader knows, by grade_id."""
    return {c.metadata["nbgrader"]["grade_id"]: c for c in notebook.cells if "nbgrader" in c.metadata}


def cleared(source):
    """What nbgrader's ClearSolutions makes of a cell, with the stub of our nbgrader_config.py."""
    lines, inside = [], False
    for line in source.split("\n"):
        if "BEGIN SOLUTION" in line:
            inside = True
            lines.append(re.match(r"\s*", line)[0] + "return ...")
        elif "END SOLUTION" in line:
            inside = False
        elif not inside:
            lines.append(line)
    assert not inside
    return "\n".join(lines)


def imports_of(notebook):
    nodes = [n for c in notebook.cells if c.cell_type == "code" for n in parsed(c.source)]
    return "\n".join(ast.unparse(n) for n in nodes if isinstance(n, ast.Import | ast.ImportFrom))


@pytest.mark.slow
def test_a_wheel_has_numbers_in_place_of_solutions(monkeypatch):
    """As in pyproject.toml: no lesson_*.py, and reference_cases.json.gz beside the definition of an exercise."""
    for cached in (exercises.stored, exercises.of_lesson, exercises.lessons):
        cached.cache_clear()
    right, wrong = learn.exercise("101.1").solution, next(iter(learn.exercise("103.1").slips.values()))
    exercises.of_lesson.cache_clear()
    exercises.stored.cache_clear()
    monkeypatch.setattr(exercises, "STORED", stored.OUT)
    try:
        assert learn.check("101.1", right).right
        assert (learn.check("103.1", wrong).right, learn.check("103.1", wrong).slip) == (False, 0)
        assert learn.check("101.1", lambda pi, reward: right(pi, -reward)).kind
        for which in learn.ids():
            assert learn.exercise(which).task
            with pytest.raises(EnvironmentLacks):
                learn.solution(which)
        with pytest.raises(EnvironmentLacks):
            learn.check("101.1", right, seed=1)
    finally:
        monkeypatch.undo()
        for cached in (exercises.stored, exercises.of_lesson, exercises.lessons):
            cached.cache_clear()


def test_the_numbers_of_the_wheel_are_those_of_the_exercises():
    """Else run python -m pmdkit_course.stored."""
    assert json.loads(gzip.decompress(stored.OUT.read_bytes()))["sources"] == stored.sources()


@pytest.mark.slow
def test_the_metadata_is_nbgraders(kit):
    """The rules of nbgrader/nbgraderformat/v3.py: ids that are unique and not empty, points where there is a grade."""
    for part in ("release", "source"):
        cells = [c for c in opened(kit, part).cells if "nbgrader" in c.metadata]
        marks = [c.metadata["nbgrader"] for c in cells]
        assert len({m["grade_id"] for m in marks}) == len(marks) == 2 * len(of_lesson("103"))
        for cell, mark in zip(cells, marks, strict=True):
            assert mark["schema_version"] == 3
            assert all(isinstance(mark[role], bool) for role in ROLES)
            assert mark["cell_type"] == cell.cell_type == "code"
            assert re.fullmatch(r"[A-Za-z0-9_-]+", mark["grade_id"])
            assert ("points" in mark) == mark["grade"] == mark["locked"] != mark["solution"]


def test_nbgrader_makes_the_release_out_of_the_source(kit):
    release, source = opened(kit, "release"), opened(kit, "source")
    assert [cleared(c.source) for c in source.cells] == [c.source for c in release.cells]
    assert "BEGIN SOLUTION" not in json.dumps(release)


def test_graded_cells_pass_with_solutions_and_fail_without(kit):
    for part in ("release", "source"):
        notebook = opened(kit, part)
        cells, names = roles(notebook), {}
        exec(imports_of(notebook), names)
        for exercise in of_lesson("103"):
            key = exercise.id.replace(".", "-")
            exec(cells[f"answer-{key}"].source, names)
            graded = cells[f"test-{key}"]
            assert "raises-exception" in graded.metadata["tags"]  # "Run all" goes on
            if part == "source":
                exec(graded.source, names)
            else:
                with pytest.raises(AssertionError, match="Not filled in yet"):
                    exec(graded.source, names)


def test_gradescope_can_run_its_script(kit):
    assert os.access(kit / "gradescope" / "run_autograder", os.X_OK)


def test_the_answers_hold_solution_hints_and_slips(kit):
    text = (kit / "answers.md").read_text()
    for exercise in of_lesson("103"):
        assert learn.solution(exercise.id) in text
        assert all(part in text for part in (*exercise.hints, *exercise.slips))


def test_a_build_that_fails_leaves_nothing(tmp_path, call, capsys):
    place = tmp_path / "lessons"
    place.mkdir()
    (place / "103_name.py").write_text((TUTORIALS / f"{STEM}.py").read_text().replace('"check", "103.2"', '"check"'))
    assert call("learn", "course", "--lessons", place, "--out", tmp_path / "kit") == 2
    assert [path.name for path in tmp_path.iterdir()] == ["lessons"]
