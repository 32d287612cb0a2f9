"""`pmdkit learn`: what it prints, its exit codes, and what it keeps."""

import json

import pytest

import pmdkit_course as learn
from pmdkit_course import progress
from pmdkit_course.source import solution_source

RIGHT = solution_source(learn.exercise("103.1"))


@pytest.fixture
def notebook(tmp_path):
    """A lesson's notebook in tutorials/, its first exercise solved and its second not touched."""
    sources = {"103.1": RIGHT, "103.2": "def find_lambda(pi, reward, tau):\n    return ..."}
    found = [
        {"cell_type": "code", "source": source, "metadata": {"tags": ["exercise", which]}, "outputs": []}
        for which, source in sources.items()
    ]
    path = tmp_path / "tutorials" / "103_name.ipynb"
    path.parent.mkdir()
    path.write_text(json.dumps({"nbformat": 4, "cells": found}))
    return path


def test_the_list_has_an_entry_per_exercise(call, capsys):
    assert call("learn", "list", "--json") == 0
    entries = json.loads(capsys.readouterr().out)
    assert [e["id"] for e in entries] == learn.ids()
    assert entries[0].keys() >= {"id", "lesson", "title", "difficulty", "minutes", "solved"}
    assert call("learn", "list") == 0
    out = capsys.readouterr().out
    assert all(which in out for which in learn.ids())


@pytest.mark.slow
def test_a_right_answer_leaves_with_0_and_is_remembered(notebook, call, capsys):
    assert call("learn", "check", "103.1") == 0
    assert capsys.readouterr().out == "103.1  Right.\n"
    assert call("learn", "list", "--json") == 0
    assert [e["id"] for e in json.loads(capsys.readouterr().out) if e["solved"]] == ["103.1"]
    assert call("learn", "progress") == 0
    assert "1 of 3" in capsys.readouterr().out


def test_an_answer_that_is_not_right_leaves_with_4_and_names_a_hint(notebook, call, capsys):
    assert call("learn", "check", "103.2") == 4
    out = capsys.readouterr().out
    assert "103.2  Not filled in yet." in out
    assert "pmdkit learn hint 103.2" in out
    assert progress.read() == {}  # nothing was tried


@pytest.mark.slow
def test_a_file_or_a_folder_is_checked_whole(notebook, call, capsys):
    notebook.with_suffix(".py").write_text("# %%\n")  # the folder of a checkout has both
    for arguments in ((notebook,), ("--all",)):
        assert call("learn", "check", *arguments, "--json") == 4
        verdicts = json.loads(capsys.readouterr().out)
        assert [(v["exercise"], v["right"]) for v in verdicts] == [("103.1", True), ("103.2", False)]


def test_a_lesson_is_checked_with_what_it_lacks(notebook, call, capsys):
    assert call("learn", "check", "103") == 4
    out = capsys.readouterr().out
    assert "103.1  Right." in out
    assert "defines no function `lambda_of_step`" in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "check what?"),
        (("103.9",), "unknown exercise '103.9'; did you mean '103."),
        (("104.1",), "no notebook 104_*.ipynb in ./, tutorials/, lessons/"),
        (("103.1", "none.py"), "none.py cannot be read"),
        (("none.py",), "none.py cannot be read"),
        (("a.py", "b.py"), "two files"),
        (("103.1", "b.py", "--all"), "--all takes a folder"),
    ],
)
def test_wrong_usage_leaves_with_2(notebook, call, capsys, arguments, told):
    assert call("learn", "check", *arguments) == 2
    assert told in capsys.readouterr().err


def test_two_notebooks_of_a_lesson_are_not_guessed_between(notebook, call, capsys):
    notebook.with_name("103_name-Copy1.ipynb").write_text(notebook.read_text())
    assert call("learn", "check", "103.1") == 2
    assert "more than once" in capsys.readouterr().err


def test_show_hint_and_solution(call, capsys):
    question = learn.exercise("103.2")
    assert call("learn", "show", "103.2") == 0
    assert "def find_lambda(pi, reward, tau):" in capsys.readouterr().out
    assert call("learn", "hint", "103.2", "--step", 2) == 0
    assert " ".join(question.hints[1].split()) in " ".join(capsys.readouterr().out.split())
    assert call("learn", "hint", "103.2", "--step", 9) == 2
    assert "hints 1 to 3; got step 9" in capsys.readouterr().err
    assert call("learn", "solution", "103.2") == 0
    assert capsys.readouterr().out.strip() == learn.solution("103.2")


def test_progress_counts_tries_and_keeps_the_first_day(own_state):
    wrong, right = (lambda p, eta: p), learn.exercise("103.1").solution
    learn.check("103.1", wrong)
    assert progress.read() == {"103.1": {"tries": 1, "solved": None}}
    learn.check("103.1", right)
    day = progress.read()["103.1"]["solved"]
    learn.check("103.1", wrong)
    assert progress.read() == {"103.1": {"tries": 3, "solved": day}}
    assert progress.path().is_relative_to(own_state)


@pytest.mark.parametrize("content", [b"", b"[1]", b'{"exercises": {"103.1": 3}}', b"\xff"])
def test_a_record_that_cannot_be_read_fails_no_check(own_state, content):
    progress.path().parent.mkdir()
    progress.path().write_bytes(content)
    assert learn.check("103.1", learn.exercise("103.1").solution).right
    assert progress.solved() == {"103.1"}


def test_a_record_that_cannot_be_written_fails_no_check(own_state):
    (own_state / "pmdkit").write_text("a file where the folder should be")
    assert learn.check("103.1", learn.exercise("103.1").solution).right
    assert progress.read() == {}


@pytest.mark.slow
def test_a_verdict_does_not_steer_the_terminal(tmp_path, call, capsys):
    """Neither by the name of the file nor by what the answer raises."""
    wrong = "def tau_for(p, eta):\n    raise ValueError('\\x1b]0;owned\\x07\\x9b2J\\u202e')\n"
    for name, text in (("\x1b[2J.py", "x = 1\n"), ("a.py", wrong)):
        (tmp_path / name).write_text(text)
        assert call("learn", "check", "103.1", name) == 4
        out, err = capsys.readouterr()
        assert all(char.isprintable() or char == "\n" for char in out + err)


@pytest.mark.slow
def test_where_nothing_isolates_check_goes_on_and_grade_does_not(tmp_path, call, capsys, monkeypatch):
    """A learner's own code on the learner's own machine needs no sandbox."""
    monkeypatch.setattr("pmdkit_course.sandbox.LACKING", "darwin has no namespaces")
    (tmp_path / "a.py").write_text(RIGHT)
    assert call("learn", "check", "103.1", "a.py") == 0
    assert call("learn", "grade", ".") == 3
    assert "darwin has no namespaces" in capsys.readouterr().err
    assert call("learn", "grade", ".", "--unsafe") == 0
    assert "note: unsafe: the system did not confine reading (darwin has no namespaces)" in capsys.readouterr().err
