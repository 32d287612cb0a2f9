"""The instructor's kit: what students get has no solution, what instructors get passes, and nothing is overwritten."""

import ast
import csv
import importlib
import json
import re
from pathlib import Path

import nbformat
import pytest

import pmdkit_course as learn
from pmdkit.extras import remedy
from pmdkit_course import notebooks
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
    build(out, {"student", "solutions", "print"}, ["103"], TUTORIALS)
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


def test_a_build_is_the_same_every_time(kit, tmp_path):
    from pmdkit_course.kit import build

    build(tmp_path / "again", {"student", "solutions"}, ["103"], TUTORIALS)
    for path in (tmp_path / "again").rglob("*"):
        if path.is_file():
            assert path.read_bytes() == (kit / path.relative_to(tmp_path / "again")).read_bytes()


def test_a_page_loads_nothing_from_elsewhere(kit):
    page = (kit / "print" / f"{STEM}.html").read_text()
    loaded = re.findall(r"<(?:script|img|link|iframe|source)\b[^>]*?(?:src|href)=\"([^\"]*)\"", page)
    assert loaded == ["katex/katex.min.css", "katex/katex.min.js"]
    assert all((kit / "print" / path).exists() for path in loaded)
    assert "@import" not in page
    assert not re.search(r"url\((?!data:)", page)
    assert '<html lang="en">' in page
    assert page.count("<h1") == 1
    assert 'class="math-block"' in page
    assert "$" not in re.sub(r"<(script|pre|code)\b.*?</\1>", "", page, flags=re.DOTALL)


@pytest.mark.nightly
def test_an_executed_page_has_pictures_in_words_too(tmp_path, call):
    out = tmp_path / "kit"
    assert call("learn", "course", "--print", "--execute", "--only", "103", "--lessons", TUTORIALS, "--out", out) == 0
    page = (out / "print" / f"{STEM}.html").read_text()
    pictures = re.findall(r'<img\b[^>]*src="data:image/png[^>]*>', page)
    assert len(pictures) >= 3
    assert all(len(re.search(r'alt="([^"]*)"', tag)[1]) > 50 for tag in pictures)


def test_the_timing_sheet_adds_up(kit):
    (row,) = csv.DictReader((kit / "timing.csv").read_text().splitlines())
    assert row["lesson"] == "103"
    assert int(row["exercises"]) == len(of_lesson("103"))
    assert int(row["exercise_minutes"]) == sum(e.minutes for e in of_lesson("103"))
    assert 0 < int(row["minutes_to_read"]) <= 60
    assert int(row["seconds_to_run"]) > 0
    assert "| **all** |" in (kit / "timing.md").read_text()


def test_the_answers_hold_solution_hints_and_slips(kit):
    text = (kit / "answers.md").read_text()
    for exercise in of_lesson("103"):
        assert learn.solution(exercise.id) in text
        assert all(part in text for part in (*exercise.hints, *(slip.says for slip in exercise.slips)))


def test_only_what_is_asked_for_is_built(tmp_path, call, capsys):
    assert call("learn", "course", "--student", "--only", "103", "--lessons", TUTORIALS, "--out", tmp_path / "kit") == 0
    names = {path.name for path in (tmp_path / "kit").iterdir()}
    assert names == {"release", "README.md", "timing.csv", "timing.md", "nbgrader_config.py"}
    assert [path.name for path in tmp_path.iterdir()] == ["kit"]


def test_a_folder_with_something_in_it_stays_as_it_is(tmp_path, call, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert call("learn", "course", "--lessons", TUTORIALS, "--out", tmp_path) == 2
    assert "not empty; nothing was changed" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_build_that_fails_leaves_nothing(tmp_path, call, capsys):
    place = tmp_path / "lessons"
    place.mkdir()
    (place / "103_name.py").write_text((TUTORIALS / f"{STEM}.py").read_text().replace('"check", "103.2"', '"check"'))
    assert call("learn", "course", "--lessons", place, "--out", tmp_path / "kit") == 2
    assert '103_name has 0 cells tagged "check", "103.2"' in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["lessons"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--lessons", "."), "holds no lesson such as 103_name.py"),
        (("--only", "104x"), "unknown lesson '104x'; did you mean '104'"),
        (("--student", "--execute"), "add --print"),
    ],
)
def test_wrong_usage_is_told(tmp_path, call, capsys, arguments, told):
    assert call("learn", "course", "--out", tmp_path / "kit", *arguments) == 2
    assert told in capsys.readouterr().err


def test_where_no_lessons_came_with_the_package_there_is_a_sentence(tmp_path, call, capsys, monkeypatch):
    monkeypatch.setattr(notebooks, "shipped", lambda: tmp_path / "absent")
    assert call("learn", "course", "--out", tmp_path / "kit") == 2
    assert "install pmdkit again, or give --lessons FOLDER" in capsys.readouterr().err


@pytest.mark.parametrize("module", ["jupytext", "nbformat", "nbconvert", "nbclient"])
def test_a_missing_extra_is_told_with_what_to_do(tmp_path, call, capsys, monkeypatch, module):
    real = importlib.import_module

    def without(name, *more):
        if name == module:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return real(name, *more)

    monkeypatch.setattr(importlib, "import_module", without)
    options = ("--print", "--execute") if module == "nbclient" else ()
    code = call("learn", "course", "--only", "103", "--lessons", TUTORIALS, "--out", tmp_path / "kit", *options)
    assert code == 3
    assert remedy("course") in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
