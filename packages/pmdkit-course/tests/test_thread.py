"""my_pmd.py, the program that a learner writes: its parts are exercises, and the whole of it learns as pmdkit does."""

import runpy
from pathlib import Path

import matplotlib.pyplot as plt

import pmdkit_course as learn
from pmdkit_course import answers
from pmdkit_course.notebooks import read
from pmdkit_course.source import solution_parts

PROGRAM = Path(__file__).parents[3] / "tutorials" / "my_pmd.py"


def test_filled_in_it_is_right_part_by_part_and_draws_the_curve_of_pmdkit(tmp_path, monkeypatch, capsys):
    parts = answers.exercises_in(read(PROGRAM), [learn.exercise(which) for which in learn.ids()])
    assert [e.id for e in parts] == [*(f"{n}.0" for n in (101, 102, 103, 104, 105)), "105.1", "107.0"]
    text = PROGRAM.read_text()
    for e in parts:
        assert text.count(e.start) == 1
        text = text.replace(e.start, solution_parts(e).text)
    monkeypatch.chdir(tmp_path)
    Path("my_pmd.py").write_text(text)
    plt.switch_backend("agg")
    names = runpy.run_path("my_pmd.py")
    assert all(learn.check(e.id, names[e.name]).right for e in parts)
    names["main"]()
    last, differs = (float(line.removesuffix(" at most").split()[-1]) for line in capsys.readouterr().out.splitlines())
    assert last > 0.99
    assert differs < 1e-12
    assert Path("my_pmd.png").stat().st_size > 5000
