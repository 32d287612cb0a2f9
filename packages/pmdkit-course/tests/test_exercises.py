"""Every exercise: its solution is right, each known slip is named as itself, and its lesson has it word for word."""

import ast
import functools
import inspect
import json
from pathlib import Path

import jupytext
import numpy as np
import pytest

import pmdkit_course as learn
from pmdkit_course.exercises import lessons, of_lesson
from pmdkit_course.judging import RIGHT, UNTOUCHED
from pmdkit_course.nbgrader import TO_FILL, bound_in, filled_in
from pmdkit_course.notebooks import parsed
from pmdkit_course.reference_cases import SEED
from pmdkit_course.serialization import encode
from pmdkit_course.source import solution_source

TUTORIALS = Path(__file__).parents[3] / "tutorials"
each = pytest.mark.parametrize("which", learn.ids())


@functools.cache
def cells_of(number):
    (path,) = TUTORIALS.glob(f"{number}_*.py")
    return jupytext.read(path).cells


def cell_of(exercise):
    """Its place in the lesson, and the cell to be filled in."""
    cells = cells_of(exercise.lesson)
    (found,) = [(i, c) for i, c in enumerate(cells) if {"exercise", exercise.id} <= set(c.metadata.get("tags", []))]
    return found


def test_every_lesson_has_exercises_and_no_two_share_a_name():
    names = [learn.exercise(which).name for which in learn.ids()]
    assert len(set(names)) == len(names) >= 24  # a file without tags is matched by name
    assert [path.stem[:3] for path in sorted(TUTORIALS.glob("[0-9]*.py"))] == list(lessons())
    assert all(of_lesson(number) for number in lessons())


@each
def test_it_is_complete_and_untouched_it_says_so(which):
    exercise = learn.exercise(which)
    verdict = learn.check(which, lambda *case: ...)
    assert (verdict.right, verdict.untouched, verdict.says) == (False, True, UNTOUCHED)
    assert ast.get_docstring(ast.parse(exercise.start).body[0])
    assert len(exercise.hints) >= 2
    assert 1 <= exercise.difficulty <= 5
    first, again = ([encode(case) for case in exercise.inputs(np.random.default_rng(SEED))] for _ in range(2))
    assert len(first) >= 3
    assert json.dumps(first) == json.dumps(again)  # as text a NaN is itself


@pytest.mark.slow
@each
def test_the_solution_is_right(which):
    """On other inputs than those of the check, which the solution as it is shown passes below."""
    exercise = learn.exercise(which)
    assert learn.judge(exercise, exercise.solution, seed=1).says == RIGHT


@pytest.mark.slow
@each
def test_every_slip_is_named_as_itself(which):
    """So none agrees with the solution, which would be right, nor with an earlier slip, which would be named."""
    exercise = learn.exercise(which)
    assert len(exercise.slips) >= 2
    for number, (says, wrong) in enumerate(exercise.slips.items()):
        for each in wrong if isinstance(wrong, tuple) else (wrong,):
            verdict = learn.judge(exercise, each)
            assert (verdict.right, verdict.slip, verdict.says) == (False, number, says)


@pytest.mark.slow
@each
def test_the_solution_as_it_is_shown_runs_alone_and_in_the_instructors_notebook(which):
    exercise = learn.exercise(which)
    place, cell = cell_of(exercise)
    before = cells_of(exercise.lesson)[:place]
    filled = filled_in(cell.source, exercise, bound_in(before))
    imports = [ast.unparse(n) for c in before if c.cell_type == "code" for n in parsed(c.source)]
    imports = [line for line in imports if line.startswith(("import ", "from "))]
    for source in (solution_source(exercise), "\n".join([*imports, filled])):
        names = {}
        exec(source, names)
        assert learn.judge(exercise, names[exercise.name]).right


@each
def test_the_lesson_has_the_task_the_function_and_the_check(which):
    exercise = learn.exercise(which)
    place, cell = cell_of(exercise)
    task, check = cells_of(exercise.lesson)[place - 1], cells_of(exercise.lesson)[place + 1]
    assert task.source.startswith(f"**Exercise {which}: {exercise.title}")
    assert exercise.task in task.source
    assert exercise.start == cell.source
    (written,) = ast.parse(cell.source).body
    assert (written.name, [a.arg for a in written.args.args]) == (
        exercise.name,
        list(inspect.signature(exercise.solution).parameters),
    )
    assert TO_FILL.search(cell.source)
    assert check.metadata["tags"] == ["check", which]
    assert check.source.splitlines()[-1] == f'learn.check("{which}", {exercise.name})'
