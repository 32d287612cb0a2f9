"""What `pmdkit learn check` is asked to check: exercises, and the files that answer them. Judging: pmdkit/learn."""

from pathlib import Path

from pmdkit.errors import UsageError
from pmdkit.learn import Exercise, Verdict, exercise, ids
from pmdkit.learn.exercises import lessons, of_lesson
from pmdkit.learn.handed_in import Cell, exercises_in, read
from pmdkit.learn.lessons import folder, notebook


def questions(which: str | None, file: Path | None, every: bool) -> list[tuple[Exercise, list[Cell], Path]]:
    """What is to be checked: exercise, cells of the file, file."""
    if every:
        if file is not None:
            raise UsageError("--all takes a folder and no exercise: pmdkit learn check --all tutorials")
        place = folder(Path(which) if which else None, lessons())
        paths = [notebook(number, place) for number in lessons() if list(place.glob(f"{number}_*"))]
        return [(e, cells, path) for path in paths for cells in [read(path)] for e in exercises_in(cells, known())]
    if which is None:
        raise UsageError("check what? An exercise (103.2), a lesson (103), a file, or --all; see pmdkit learn list")
    if which in lessons():
        path = file or notebook(which)
        return [(e, cells, path) for cells in [read(path)] for e in of_lesson(which)]
    if Path(which).suffix in (".ipynb", ".py"):
        if file is not None:
            raise UsageError(f"two files: {which} and {file}; give an exercise and one file, or one file alone")
        cells = read(Path(which))
        found = exercises_in(cells, known())
        if not found:
            raise UsageError(f"{which} answers no exercise: no cell is tagged with one and no function has its name")
        return [(e, cells, Path(which)) for e in found]
    found = [exercise(which)]  # before the file is looked for: a misspelt id is told first
    path = file or notebook(found[0].lesson)
    return [(e, read(path), path) for e in found]


def known() -> list[Exercise]:
    """All exercises."""
    return [exercise(which) for which in ids()]


def missing(exercise: Exercise, path: Path) -> Verdict:
    """The verdict on a file that has nothing for an exercise."""
    return Verdict(False, f"{path} defines no function `{exercise.name}`.", exercise=exercise.id, untouched=True)
