"""Lessons as nbgrader wants them: for students, and with solutions. nbgrader is not needed to make or use them."""

import copy
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jupytext
import nbformat

from pmdkit_course import notebooks
from pmdkit_course.exercises import Exercise
from pmdkit_course.source import comment, is_import, names_of, solution_parts

SCHEMA = 3
"Version of the metadata of a cell: nbgrader/nbgraderformat/v3.py in nbgrader 0.9."
GRADED_SEED = 1
"Seed for the inputs of graded cells, so that an answer fitted to the inputs of the check cell gains nothing."
TO_FILL = re.compile(r"^( +)return \.\.\.$", re.MULTILINE)
BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"


def open_lesson(path: Path) -> Any:
    """A lesson as a notebook without outputs, identical in every build."""
    notebook = jupytext.read(path)
    notebook.metadata = {"kernelspec": dict(notebook.metadata["kernelspec"]), "language_info": {"name": "python"}}
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    return numbered(notebook, path.stem)


def numbered(notebook: Any, name: str) -> Any:
    """Cells with ids that do not change from build to build."""
    for number, cell in enumerate(notebook.cells):
        cell.id = f"{name[:40]}-{number}"
    return notebook


def for_students(lesson: Any, exercises: Sequence[Exercise], name: str) -> Any:
    """A copy with the exercises left to fill in, and a graded cell after each check."""
    notebook = copy.deepcopy(lesson)
    for exercise in exercises:
        cell = notebook.cells[place_of(notebook, "exercise", exercise, name)]
        cell.metadata["nbgrader"] = metadata(exercise, "answer", solution=True)
        notebook.cells.insert(place_of(notebook, "check", exercise, name) + 1, graded_cell(exercise))
    return numbered(notebook, name)


def with_solutions(lesson: Any, exercises: Sequence[Exercise], name: str) -> Any:
    """A copy with the exercises filled in. The markers tell nbgrader what to remove again for students."""
    notebook = for_students(lesson, exercises, name)
    for exercise in exercises:
        place = place_of(notebook, "exercise", exercise, name)
        cell = notebook.cells[place]
        cell.source = filled_in(cell.source, exercise, bound_in(notebook.cells[:place]))
    return notebook


def filled_in(start: str, exercise: Exercise, bound: set[str]) -> str:
    """The start of an exercise with its solution in place of `return ...`.

    Helpers come after the function, so that one region holds everything to be removed: nbgrader inserts its placeholder
    once per region.
    """
    found = TO_FILL.search(start)
    assert found is not None, f"the cell of exercise {exercise.id} has no line `return ...`"
    parts = solution_parts(exercise, bound)
    lines = [found[1] + BEGIN]
    if parts.why:
        lines.append(comment(parts.why))
    lines.append(parts.body)
    rest = "\n\n\n".join(filter(None, ["\n".join(parts.imports), *parts.helpers]))
    lines += ["", "", rest, END] if rest else [found[1] + END]
    return start[: found.start()] + "\n".join(lines) + start[found.end() :]


def bound_in(cells: Sequence[Any]) -> set[str]:
    """Names that the imports in some cells bind."""
    sources = [cell.source for cell in cells if cell.cell_type == "code"]
    nodes = [node for source in sources for node in notebooks.parsed(source) if is_import(node)]
    return {name for node in nodes for name in names_of(node)}


def graded_cell(exercise: Exercise) -> Any:
    """The cell that an autograder runs. Students see it; "Run all" continues after it even if it fails."""
    source = (
        "# Graded: passes when the answer is right on other inputs too. Leave it as it is.\n"
        "import pmdkit_course as learn\n\n"
        f'verdict = learn.check("{exercise.id}", {exercise.name}, seed={GRADED_SEED})\n'
        "assert verdict.right, verdict.says"
    )
    cell = nbformat.v4.new_code_cell(source)
    cell.metadata["tags"] = ["graded", exercise.id, "raises-exception"]
    cell.metadata["nbgrader"] = metadata(exercise, "test", grade=True) | {"points": exercise.difficulty}
    return cell


def metadata(exercise: Exercise, kind: str, grade: bool = False, solution: bool = False) -> dict[str, Any]:
    """The nbgrader metadata of a cell."""
    return {
        "grade": grade,
        "solution": solution,
        "locked": grade,
        "task": False,
        "grade_id": f"{kind}-{exercise.id.replace('.', '-')}",
        "schema_version": SCHEMA,
        "cell_type": "code",
    }


def place_of(notebook: Any, tag: str, exercise: Exercise, name: str) -> int:
    """Index of the cell with a tag and the id of an exercise."""
    places = [i for i, c in enumerate(notebook.cells) if {tag, exercise.id} <= set(c.metadata.get("tags", []))]
    if len(places) != 1:
        raise ValueError(f'lesson {name} has {len(places)} cells tagged "{tag}", "{exercise.id}"; expected one')
    return places[0]
