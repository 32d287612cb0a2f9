"""Grading a folder: right, wrong and evil submissions, each with its line; the rest goes on."""

import csv
import io
import json

import pytest

from pmdkit_course import exercise
from pmdkit_course.grading import harmless, submissions
from pmdkit_course.source import solution_source

SOLVED = solution_source(exercise("103.1"))
BOTH = f"{SOLVED}\n\n\n{solution_source(exercise('103.2'))}"


def cells(*sources):
    """The bytes of a notebook whose cells are tagged 103.1, 103.2, ..."""
    found = [
        {"cell_type": "code", "source": source, "metadata": {"tags": ["exercise", f"103.{n}"]}, "outputs": []}
        for n, source in enumerate(sources, 1)
    ]
    return json.dumps({"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": found}).encode()


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.fixture
def folder(tmp_path):
    """Six students: a folder each, nbgrader's two, a file of its own; a link and a hidden file count nothing."""
    root = tmp_path / "submitted"
    put(root / "ada" / "103.ipynb", cells(SOLVED, solution_source(exercise("103.2"))))
    put(root / "bob" / "103_hidden_regulariser" / "103.ipynb", cells("def tau_for(p, eta):\n    return p / eta"))
    put(root / "eve" / "103.ipynb", cells("import os\nos._exit(0)", "def find_lambda(*a):\n    return [][1]"))
    put(root / "=cmd.py", BOTH.replace("return p", "return -p"))
    put(root / "jon" / "103.ipynb", "{ torn")
    put(root / "jon" / "late.py", BOTH)
    put(root / ".hidden" / "103.ipynb", "{")
    put(root / "mia" / "notes.txt", "sorry")
    (root / "link").symlink_to(root / "ada")
    return root


def test_every_layout_is_found_and_links_are_not_followed(folder):
    found = {each.student: [path.name for path in each.files] for each in submissions(folder)}
    assert found == {
        "=cmd": ["=cmd.py"],
        "ada": ["103.ipynb"],
        "bob": ["103.ipynb"],
        "eve": ["103.ipynb"],
        "jon": ["103.ipynb", "late.py"],
        "mia": [],
    }


@pytest.mark.slow  # every exercise in a sandbox
def test_the_table_has_a_line_for_everybody_and_every_exercise(folder, call, capsys):
    assert call("learn", "grade", folder, "--csv") == 0
    out, err = capsys.readouterr()
    rows = list(csv.reader(io.StringIO(out)))
    assert rows[0] == ["student", "exercise", "right", "verdict", "seconds"]
    told = {(row[0], row[1]): (row[2], row[3]) for row in rows[1:]}
    assert told["ada", "103.1"] == told["ada", "103.2"] == ("yes", "Right.")
    assert told["bob", "103.1"] == ("no", exercise("103.1").slips[1].says)
    assert told["bob", "103.2"] == ("no", "Not handed in.")
    assert "It ended Python itself" in told["eve", "103.1"][1]
    assert "It raised IndexError in line 2 of the function" in told["eve", "103.2"][1]
    assert told["'=cmd", "103.1"][0] == "no"
    assert told["'=cmd", "103.2"] == ("yes", "Right.")
    assert "not a notebook of format 4" in told["jon", ""][1]
    assert told["jon", "103.1"] == ("yes", "Right.")
    assert told["mia", "103.2"] == ("no", "Not handed in.")
    assert [tuple(row[:2]) for row in rows[1:]] == sorted(told, key=lambda key: (key[0].lstrip("'"), key[1]))
    assert "6 students, 2 exercises: 5 right, 4 wrong, 3 not handed in, 1 files not read" in err


@pytest.mark.nightly
def test_what_counts_can_be_chosen_and_comes_as_json(folder, call, capsys):
    for name in ("eve", "jon", "mia"):
        for path in (folder / name).iterdir():
            path.unlink()
    assert call("learn", "grade", folder, "--only", "103.2", "--json", "--seed", 5) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["exercise"] for row in rows} == {"103.2"}
    assert {row["student"]: row["right"] for row in rows}["ada"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("none",), "none is not a folder"),
        ((".",), "holds no .ipynb and no .py"),
        ((".", "--csv", "--json"), "choose one"),
        ((".", "--seconds", "0"), "above 0"),
    ],
)
def test_wrong_usage_is_told(tmp_path, monkeypatch, call, capsys, arguments, told):
    monkeypatch.chdir(tmp_path)
    assert call("learn", "grade", *arguments) == 2
    assert told in capsys.readouterr().err


def test_an_unknown_exercise_to_count_is_told(folder, call, capsys):
    assert call("learn", "grade", folder, "--only", "103.22") == 2
    assert "did you mean '103.2'" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@sum", " =1", "\t=1", "\n+1"])
def test_a_name_is_no_formula(name):
    assert harmless(name).startswith("'")
    assert "\n" not in harmless(name)


def test_a_harmless_name_stays():
    assert harmless("Ada O'Neil-Ng") == "Ada O'Neil-Ng"
