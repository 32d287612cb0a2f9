"""`pmdkit learn grade` and `pmdkit learn course`: for those who teach."""

import json as to_json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from pmdkit.cli.options import Number, Whole

if TYPE_CHECKING:
    from pmdkit.learn import Exercise

Flag = Annotated[bool, Parameter(negative="")]


def grade(
    folder: Path,
    *,
    only: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    seconds: Number | None = None,
    memory_mb: Whole = 2048,
    seed: Whole | None = None,
    csv: Flag = False,
    json: Flag = False,
) -> None:
    """Grade a folder of submissions. A line per student and exercise; the summary goes to stderr.

    The folder holds STUDENT/NOTEBOOK.ipynb (or .py), nbgrader's STUDENT/ASSIGNMENT/NOTEBOOK.ipynb, or files side by
    side. Code runs in processes with limits; what these do not prevent is said in the page on grading.

    Args:
        folder: the submissions.
        only: lessons or exercises that count: --only 103 201.2; by default all that anybody handed in.
        seconds: an answer's time, if shorter than its exercise allows (20 for most).
        memory_mb: of an answer's process, beyond what Python and the packages take.
        seed: of the inputs; another one finds answers that hold for the usual inputs only.
        csv: print a table for a spreadsheet: student, exercise, right, verdict, seconds.
        json: print one JSON value.
    """
    import dataclasses

    from pmdkit.errors import UsageError
    from pmdkit.learn.grading import grade as grade_all
    from pmdkit.learn.grading import summary, to_csv
    from pmdkit.learn.judging import SEED
    from pmdkit.learn.limited import limited
    from pmdkit.learn.submissions import submissions

    if csv and json:
        raise UsageError("--csv and --json both write to stdout; choose one")
    if (seconds is not None and not seconds > 0) or memory_mb < 1:
        raise UsageError("--seconds and --memory-mb are above 0")
    handed_in, exercises = submissions(folder), chosen(only)

    def say(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    with limited(SEED if seed is None else seed, seconds, memory_mb) as judging:
        rows = grade_all(handed_in, exercises, judging, say)
        kept = judging.kept
    if not rows:
        raise UsageError(f"no file in {folder} answers an exercise: no tagged cell, and no function of that name")
    if csv:
        print(to_csv(rows), end="")
    elif json:
        print(to_json.dumps([dataclasses.asdict(row) for row in rows]))
    else:
        from rich.console import Console

        from pmdkit.cli.learn import simple_table

        table = simple_table("student", "exercise", "right", "verdict")
        for row in rows:
            words = (row.student, row.exercise, "yes" if row.right else "no", row.verdict)
            table.add_row(*(word.replace("[", r"\[") for word in words))
        Console().print(table)
    say(summary(rows))
    for what in ("writes", "network"):
        if rows and what not in kept:
            say(f"note: this system did not confine {what} for good; Python's own hook did")


def course(
    *,
    out: Path,
    student: Flag = False,
    solutions: Flag = False,
    print: Annotated[bool, Parameter(negative="")] = False,
    only: Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")] = None,
    lessons: Path | None = None,
    execute: Flag = False,
) -> None:
    """Build the instructor's kit: notebooks for students, notebooks with solutions, pages to print, a timing sheet.

    Without --student, --solutions and --print all three are built. The notebooks carry nbgrader's metadata, and the
    folder is laid out as nbgrader wants it; nbgrader is not needed to use them.

    Args:
        out: folder of the kit, new or empty.
        student: release/LESSON/LESSON.ipynb, to be handed out.
        solutions: source/LESSON/LESSON.ipynb, and answers.md with every recognised mistake.
        print: print/LESSON.html, which load nothing from elsewhere.
        only: numbers of lessons: --only 103 201.
        lessons: folder of the lessons; by default here, tutorials/ here, or the checkout pmdkit runs from.
        execute: run the lessons first, so that the printed pages have their pictures; minutes.
    """
    from pmdkit.learn.kit.build import build

    wanted = {"student": student, "solutions": solutions, "print": print}
    chosen_parts = {name for name, on in wanted.items() if on} or set(wanted)

    def say(line: str) -> None:
        sys.stderr.write(line + "\n")

    for line in build(out, chosen_parts, only, lessons, execute, say):
        sys.stdout.write(line + "\n")  # the name of an option hides `print`


def chosen(only: list[str] | None) -> "list[Exercise]":
    """The exercises that count."""
    from pmdkit.learn import exercise, ids
    from pmdkit.learn.exercises import lessons, of_lesson

    if not only:
        return [exercise(which) for which in ids()]
    found = [e for which in only for e in (of_lesson(which) if which in lessons() else (exercise(which),))]
    return sorted(set(found), key=lambda e: e.id)
