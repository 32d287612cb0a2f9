"""Build the instructor's kit from the lessons: student notebooks, solutions, printable pages, a timing sheet."""

import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import nbformat

from pmdkit.errors import EnvironmentLacks, UsageError, unknown
from pmdkit_course import lesson_files, timing
from pmdkit_course.exercises import Exercise, lessons, of_lesson
from pmdkit_course.nbgrader import for_students, open_lesson, with_solutions
from pmdkit_course.printed_page import write_page
from pmdkit_course.source import solution_source

README = """\
# The instructor's kit

| folder or file | what it is |
|---|---|
| `release/LESSON/LESSON.ipynb` | to hand out: the exercises are left to be filled in |
| `source/LESSON/LESSON.ipynb` | the same with solutions; **not for students** |
| `answers.md` | every exercise with its solution, hints and the mistakes that are recognised; **not for students** |
| `print/LESSON.html` | for printing, or for reading without Jupyter |
| `timing.md`, `timing.csv` | how long each lesson takes |
| `nbgrader_config.py` | settings, if you use nbgrader |

Only the parts that you asked for are here. The solutions ship with pmdkit-course too (`pmdkit learn solution 103.2`):
they are out of sight, but anyone who looks finds them. Grades that matter need a conversation.

## Grade without nbgrader

Collect the notebooks as `submitted/STUDENT/LESSON.ipynb`, then

    pmdkit learn grade submitted --csv > grades.csv

Each answer runs alone under bubblewrap, in a second or so. `--seed 7` uses other inputs than the
students saw.

## Grade with nbgrader

This folder is an nbgrader course folder. Its Jupyter kernel needs `pmdkit-course`, and `pmdkit[llm]` for some lessons
of parts 2 and 3.

    nbgrader generate_assignment 103_hidden_regulariser
    nbgrader autograde 103_hidden_regulariser

`generate_assignment` rewrites `release/` from `source/` (give it `--force` if `release/` exists). `autograde` runs
whole lessons, which takes up to a minute each. The points of an exercise are its difficulty, 1 to 5.

Text: CC-BY-4.0. Code: Apache-2.0. The pmdkit authors.
"""

NBGRADER = '''\
"""nbgrader settings for this course: what a student finds in place of a solution."""

c = get_config()  # noqa: F821
c.CourseDirectory.course_id = "pmdkit"
c.ClearSolutions.code_stub = {"python": "return ..."}
c.ExecutePreprocessor.timeout = 600
'''


def answers(exercises: Iterable[Exercise]) -> str:
    """A Markdown page of all exercises with solutions, hints and recognised mistakes."""
    blocks = ["# Exercises and answers", "The points of a graded cell are the difficulty of its exercise, 1 to 5."]
    lesson = ""
    for e in exercises:
        if e.lesson != lesson:
            lesson = e.lesson
            blocks.append(f"## Lesson {lesson}")
        blocks += [f"### {e.id} {e.title}", f"Difficulty {e.difficulty} of 5, about {e.minutes} minutes.", e.task]
        blocks += [f"```python\n{solution_source(e)}\n```"]
        blocks += ["Hints:", "\n".join(f"{n}. {text}" for n, text in enumerate(e.hints, 1))]
        blocks += ["Recognised mistakes, as the learner sees them:", "\n".join(f"- {slip.says}" for slip in e.slips)]
    return "\n\n".join(blocks) + "\n"


def build(
    out: Path,
    parts: Collection[str],
    only: Sequence[str] | None = None,
    place: Path | None = None,
    execute: bool = False,
    log: Callable[[str], None] = lambda line: None,
) -> list[str]:
    """Write the kit; returns lines that say what it contains.

    Args:
        out: its folder, new or empty.
        parts: any of student, solutions, print.
        only: numbers of lessons; all by default.
        place: folder of the lessons.
        execute: run lessons before they are printed.
        log: receives progress messages.
    """
    if execute and "print" not in parts:
        raise UsageError("--execute runs the lessons for the printed pages; add --print")
    for wrong in set(only or ()) - set(lessons()):
        raise UsageError(unknown("lesson", wrong, lessons()))
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"output {out} exists and is not empty; nothing was changed: give another --out")
    place = lesson_files.lessons_folder(place, lessons())
    opened = [
        (path.stem, open_lesson(path), of_lesson(path.stem[:3]) if path.stem[:3] in lessons() else ())
        for path in lesson_files.lesson_files(place)
        if not only or path.stem[:3] in only
    ]
    katex = place.resolve().parent / "docs" / "assets" / "katex"
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        beside = tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent, ignore_cleanup_errors=True)
    except OSError as problem:
        raise EnvironmentLacks(f"output {out} cannot be written ({problem.strerror}); give another --out") from problem
    with beside as folder:
        aside = Path(folder) / out.name  # the folder around it is private, this one is not
        aside.mkdir()
        lines = write(aside, opened, parts, katex if katex.is_dir() else None, execute, log)
        aside.replace(out)  # onto nothing, or onto an empty folder
    return [f"{out}/{line}" for line in lines]


def write(
    out: Path,
    opened: Sequence[tuple[str, Any, tuple[Exercise, ...]]],
    parts: Collection[str],
    katex: Path | None,
    execute: bool,
    log: Callable[[str], None],
) -> list[str]:
    """Write all files of the kit."""
    make = {"student": ("release", for_students), "solutions": ("source", with_solutions)}
    for part, (name, notebook_of) in make.items():
        for stem, lesson, exercises in opened if part in parts else ():
            path = out / name / stem / f"{stem}.ipynb"
            path.parent.mkdir(parents=True)
            nbformat.write(notebook_of(lesson, exercises, stem), path)
    if "print" in parts:
        (out / "print").mkdir()
        if katex is None:
            log("docs/assets/katex is not next to the lessons: equations in print/ stay as LaTeX source")
        for stem, lesson, _ in opened:
            if execute:
                log(f"running {stem}")
            write_page(lesson, out / "print" / f"{stem}.html", katex, execute)
    rows = [timing.timing(stem[:3], lesson, exercises) for stem, lesson, exercises in opened]
    texts = {"timing.csv": timing.to_csv(rows), "timing.md": timing.to_markdown(rows), "README.md": README}
    texts["nbgrader_config.py"] = NBGRADER
    if "solutions" in parts:
        texts["answers.md"] = answers(e for _, _, exercises in opened for e in exercises)
    for name, text in texts.items():
        (out / name).write_text(text, encoding="utf-8")
    count = sum(len(exercises) for _, _, exercises in opened)
    built = [f"{path.name}/  {len(opened)} lessons" for path in sorted(out.iterdir()) if path.is_dir()]
    return [*built, f"README.md  what is where; {count} exercises", "timing.md  how long each lesson takes"]
