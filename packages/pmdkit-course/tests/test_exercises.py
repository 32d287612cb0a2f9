"""Every exercise: untouched it says so, its solution is right, and each known slip is named as itself."""

import ast
import dataclasses
import functools
import inspect
import json
import pickle
import sys
from pathlib import Path

import jupytext
import numpy as np
import pytest

import pmdkit_course as learn
from pmdkit_course import exercises
from pmdkit_course.comparison import same
from pmdkit_course.judging import RIGHT, SEED, UNTOUCHED, call
from pmdkit_course.kit import TO_FILL, bound_in, filled_in
from pmdkit_course.notebooks import parsed
from pmdkit_course.serialization import decode, encode
from pmdkit_course.source import solution_source, start_source

TUTORIALS = Path(__file__).parents[3] / "tutorials"
BASE = {"pmdkit", "numpy", "scipy", "torch", "gymnasium", "matplotlib"} | sys.stdlib_module_names
SEEDS = (SEED, 1)

each = pytest.mark.parametrize("which", learn.ids())


def cases_of(exercise, seed=SEED):
    return list(exercise.inputs(np.random.default_rng(seed)))


def once(function):
    """The function, computed once for each input: the judge asks every slip about every wrong answer."""
    known = {}

    def remembered(*case):
        key = json.dumps(encode(case))
        if key not in known:
            known[key] = function(*case)
        return known[key]

    return remembered


def lesson_of(exercise):
    """The cells of its lesson."""
    (path,) = TUTORIALS.glob(f"{exercise.lesson}_*.py")
    return opened(path)


@functools.cache
def opened(path):
    return jupytext.read(path).cells


def cells_of(exercise):
    """Places of the cells that are tagged with an exercise."""
    cells = lesson_of(exercise)
    return [(i, c) for i, c in enumerate(cells) if {"exercise", exercise.id} <= set(c.metadata.get("tags", []))]


def test_there_are_enough_and_no_two_share_a_name():
    ids = learn.ids()
    assert len(ids) >= 24
    names = [learn.exercise(which).name for which in ids]
    assert len(set(names)) == len(names)  # a file without tags is matched by name


@each
def test_untouched_it_says_so(which):
    verdict = learn.check(which, learn.exercise(which).start)
    assert (verdict.right, verdict.untouched, verdict.says) == (False, True, UNTOUCHED)


@pytest.mark.slow
@each
def test_the_solution_is_right(which):
    exercise = learn.exercise(which)
    for seed in SEEDS:
        assert learn.judge(exercise, exercise.solution, seed).says == RIGHT


@pytest.mark.slow
@each
def test_every_slip_is_named_as_itself(which):
    """So none agrees with the solution, which would be right, nor with an earlier slip, which would be named."""
    exercise = learn.exercise(which)
    assert len(exercise.slips) >= 2
    slips = tuple(dataclasses.replace(slip, wrong=once(slip.wrong)) for slip in exercise.slips)
    exercise = dataclasses.replace(exercise, solution=once(exercise.solution), slips=slips)
    for number, slip in enumerate(slips):
        verdict = learn.judge(exercise, slip.wrong)
        assert (verdict.right, verdict.slip, verdict.says) == (False, number, slip.says)


@each
def test_it_says_what_to_do(which):
    exercise = learn.exercise(which)
    assert exercise.title
    assert exercise.task.strip().endswith((".", "?", "`", "$", "!"))
    assert inspect.getdoc(exercise.start)
    assert len(exercise.hints) >= 2
    assert 1 <= exercise.difficulty <= 5
    assert inspect.signature(exercise.start).parameters.keys() == inspect.signature(exercise.solution).parameters.keys()
    assert TO_FILL.search(start_source(exercise))


@each
def test_its_inputs_are_several_and_follow_from_the_seed(which):
    exercise = learn.exercise(which)
    assert len(cases_of(exercise)) >= 3
    assert encode(cases_of(exercise)) == encode(cases_of(exercise))


@each
def test_inputs_and_answers_travel_between_processes(which):
    """An answer in a process of its own gets the same inputs, and what it returns arrives as it was."""
    exercise = learn.exercise(which)
    for case in cases_of(exercise):
        wanted = call(exercise.solution, pickle.loads(pickle.dumps(case)))
        assert same(decode(encode(wanted)), wanted, 0.0, exact=True)


@pytest.mark.slow
@each
def test_the_solution_as_it_is_shown_runs_alone(which):
    exercise = learn.exercise(which)
    names = {}
    exec(solution_source(exercise), names)
    assert learn.judge(exercise, names[exercise.name]).right


@each
def test_the_cell_of_the_lesson_is_the_start(which):
    exercise = learn.exercise(which)
    ((_, cell),) = cells_of(exercise)
    written, meant = (ast.parse(text).body[-1] for text in (cell.source, start_source(exercise)))
    assert (written.name, ast.dump(written.args)) == (meant.name, ast.dump(meant.args))
    assert ast.get_docstring(written)
    assert TO_FILL.search(cell.source)


@pytest.mark.slow
@each
def test_the_instructors_cell_runs_after_the_imports_of_the_lesson(which):
    exercise = learn.exercise(which)
    ((place, cell),) = cells_of(exercise)
    before = lesson_of(exercise)[:place]
    source = filled_in(cell.source, exercise, bound_in(before))
    imports = [ast.unparse(n) for c in before if c.cell_type == "code" for n in parsed(c.source)]
    imports = [line for line in imports if line.startswith(("import ", "from "))]
    names = {}
    exec("\n".join([*imports, source]), names)
    assert learn.judge(exercise, names[exercise.name]).right


def test_the_exercises_load_on_a_base_install():
    for path in Path(exercises.__file__).parent.glob("lesson_*.py"):
        for node in ast.parse(path.read_text()).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) else []
            assert {name.partition(".")[0] for name in names} <= BASE, path
