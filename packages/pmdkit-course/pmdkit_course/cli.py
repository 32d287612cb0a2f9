"""`pmdkit learn`: exercises checked offline, and `grade` and `course` for instructors."""

import os
import shutil
import sys
import textwrap
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from cyclopts import App
from rich.console import Console
from rich.text import Text

import pmdkit_course
from pmdkit.cli.options import Flag, Texts, Whole
from pmdkit.cli.output import print_json, simple_table
from pmdkit.errors import UsageError, printable
from pmdkit_course import answers, exercises, grading, lesson_files, notebooks, reference_cases, sandbox
from pmdkit_course.exercises import AnswerVerdict, Exercise, exercise, ids

learn = App(name="learn", help="The exercises of the course, checked offline: the verdict names the mistake.")


@learn.command(name="list")
def list_(*, json: Flag = False) -> None:
    """List the exercises.

    Args:
        json: print one JSON value.
    """
    every = chosen(None)
    if json:
        names = ("id", "lesson", "title", "difficulty", "minutes")
        print_json([{name: getattr(e, name) for name in names} | {"function": e.name} for e in every])
        return
    table = simple_table("exercise", "what to do", "difficulty", "minutes")
    for e in every:
        table.add_row(e.id, e.title, f"{e.difficulty} of 5", str(e.minutes))
    console = Console()
    console.print(table)
    console.print(
        f"{len(every)} exercises, {sum(e.minutes for e in every) / 60:.0f} hours in all. pmdkit learn show ID"
    )


@learn.command
def start(folder: Path, /) -> None:
    """Copy the lessons into a folder, each as a notebook and as a .py file.

    Args:
        folder: new or empty, such as lessons; what is in it already is never overwritten.
    """
    copied = lesson_files.copy_lessons(folder)
    print(f"{len(copied)} lessons in {folder}. Open one with: jupyter lab {copied[0]}")
    print("Check an exercise from here or from there: pmdkit learn check 103.2")


@learn.command
def show(which: str) -> None:
    """Show the task of an exercise and the function to fill in.

    Args:
        which: the exercise, such as 103.2.
    """
    e = exercise(which)
    print(f"{e.id}  {e.title}  (difficulty {e.difficulty} of 5, about {e.minutes} minutes)\n")
    print(wrapped(e.task), e.start, sep="\n\n")
    print(f"\nCheck: pmdkit learn check {which} FILE    Hint: pmdkit learn hint {which}")


@learn.command
def check(which: str | None = None, file: Path | None = None, *, all: Flag = False, json: Flag = False) -> None:
    """Check answers: of one exercise, of a lesson, of a file, or of all lessons that are here.

    Exits with 0 if all answers are right, and with 4 if one is wrong or missing. Your code runs in its own process with
    limits, and is trusted as yours. For code that others wrote, use `pmdkit learn grade`.

    Args:
        which: an exercise (103.2), a lesson (103), or a file whose exercises are all checked.
        file: notebook or .py that holds the answer; by default the lesson's notebook here or in tutorials/.
        all: check every exercise of every lesson in the folder `which`, by default here or tutorials/.
        json: print one JSON value.
    """
    verdicts: list[AnswerVerdict] = []
    for e, cells, path in questions(which, file, all):
        if code := answers.answer_to(e, cells):
            verdict = sandbox.judge_code(e, code, sandboxed=False)
        else:
            nothing = f"{path} defines no function `{e.name}`."
            verdict = AnswerVerdict(False, nothing, exercise=e.id, untouched=True)
        verdicts.append(verdict)
        if not json:
            print(printable(f"{e.id}  {verdict!r}"), flush=True)
            if not verdict.right:
                print(f"       A hint: pmdkit learn hint {e.id}")
    if json:
        names = ("exercise", "right", "untouched", "slip", "kind")
        print_json([{name: getattr(v, name) for name in names} | {"verdict": v.says} for v in verdicts])
    if not verdicts or any(not verdict.right for verdict in verdicts):  # nothing checked counts as a failure
        sys.exit(4)


@learn.command
def hint(which: str, step: Whole = 1) -> None:
    """Print a hint.

    Args:
        which: the exercise, such as 103.2.
        step: the higher, the more it gives away.
    """
    text = pmdkit_course.hint(which, step)
    count = len(exercise(which).hints)
    print(wrapped(text))
    if step < count:
        print(f"\nHint {step} of {count}; the next one: pmdkit learn hint {which} {step + 1}")


@learn.command
def solution(which: str) -> None:
    """Print the solution as code that runs on its own.

    Args:
        which: the exercise, such as 103.2.
    """
    print(pmdkit_course.solution(which))


def wrapped(text: str) -> str:
    """Paragraphs wrapped to fit the terminal; code is left as it is."""
    width = min(shutil.get_terminal_size().columns, 100)
    paragraphs = text.strip().split("\n\n")
    return "\n\n".join(p if p.startswith((" ", "```", "|", "*", "-")) else textwrap.fill(p, width) for p in paragraphs)


def questions(
    which: str | None, file: Path | None, every: bool
) -> list[tuple[Exercise, list[notebooks.NotebookCell], Path]]:
    """What to check: tuples of exercise, cells of the file, and file."""
    numbers = exercises.lessons()
    if every:
        if file is not None:
            raise UsageError("--all takes a folder and no exercise: pmdkit learn check --all tutorials")
        place = lesson_files.lessons_folder(Path(which) if which else None, numbers)
        paths = [lesson_files.lesson_notebook(number, place) for number in numbers if list(place.glob(f"{number}_*"))]
        files = [(path, notebooks.read(path)) for path in paths]
        return [(e, cells, path) for path, cells in files for e in answers.exercises_in(cells, chosen(None))]
    if which is None:
        raise UsageError("check what? An exercise (103.2), a lesson (103), a file, or --all; see pmdkit learn list")
    if Path(which).suffix in notebooks.SUFFIXES:
        if file is not None:
            raise UsageError(f"two files: {which} and {file}; give an exercise and one file, or one file alone")
        file = Path(which)
        cells = notebooks.read(file)
        found = answers.exercises_in(cells, chosen(None))
        if not found:
            raise UsageError(f"{which} answers no exercise: no cell is tagged with one, no function named after one")
    else:
        found = chosen([which])  # before looking for the file, so that a misspelt id is reported first
        file = file or lesson_files.lesson_notebook(found[0].lesson)
        cells = notebooks.read(file)
    return [(e, cells, file) for e in found]


@learn.command
def grade(
    folder: Path,
    *,
    only: Texts = None,
    seconds: float | None = None,
    memory_mb: Whole = 2048,
    seed: Whole | None = None,
    csv: Flag = False,
    json: Flag = False,
    unsafe: Flag = False,
) -> None:
    """Grade a folder of submissions. A line per student and exercise; the summary goes to stderr.

    The folder holds STUDENT/NOTEBOOK.ipynb (or .py), nbgrader's STUDENT/ASSIGNMENT/NOTEBOOK.ipynb, or files side by
    side. Each answer runs in a process of its own, with limits, under bubblewrap: it sees none of your files and leaves
    nothing behind. Where bubblewrap does not run, this exits with 3 and grades nothing. It exits with 8 if there are no
    answers, and with 9 if some could not be judged: their points are unknown, and all others are printed.

    Args:
        folder: the submissions.
        only: lessons or exercises that count: --only 103 201.2; by default all that anybody handed in.
        seconds: most seconds of an answer, if that is less than its exercise allows (20 for most).
        memory_mb: memory of an answer's process, beyond what Python and the packages take.
        seed: seed of the inputs; another seed catches answers that are right for the usual inputs only.
        csv: print a table for a spreadsheet: student, exercise, right, verdict, seconds.
        json: print one JSON value.
        unsafe: grade without bubblewrap, as in a container of your own, where answers run as you, or as an account that
            owns nothing if you are root; the page on grading says what that gives up.
    """
    if csv and json:
        raise UsageError("--csv and --json both write to stdout; choose one")
    if (seconds is not None and not seconds > 0) or memory_mb < 1:
        raise UsageError("--seconds and --memory-mb must be above 0")
    handed_in, wanted = grading.submissions(folder), chosen(only)

    def log(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    account = None
    if not unsafe:
        sandbox.require_sandbox()
    elif os.geteuid() == 0:
        account = sandbox.free_account()
        log(f"note: --unsafe: the answers run without a sandbox, as account {account}, which reads what all can read")
    else:
        log("WARNING: --unsafe: the answers run as you, and can read and change all that you can, these grades too")
    seed = reference_cases.SEED if seed is None else seed
    reference_cases.reference_cases(wanted[0], seed)  # an install may lack this seed, which is no answer's fault
    options: dict[str, Any] = {
        "sandboxed": not unsafe,
        "account": account,
        "seed": seed,
        "seconds": seconds,
        "memory_mb": memory_mb,
    }
    rows = grading.grade(handed_in, wanted, partial(sandbox.judge_code, **options), log)
    if not rows:
        raise grading.NoAnswers(
            f"no file in {folder} answers an exercise: no tagged cell, and no function named after one"
        )
    if csv:
        print(grading.to_csv(rows), end="")
    elif json:
        print_json([asdict(row) for row in rows])
    else:
        table = simple_table("student", "exercise", "right", "verdict")
        for row in rows:
            words = (row.student, row.exercise, grading.in_word(row), row.verdict)
            table.add_row(*(Text(printable(word)) for word in words))  # untrusted: no markup, no terminal commands
        Console().print(table)
    log(grading.summary(rows))
    if unknown := [row for row in rows if row.right is None]:
        names = ", ".join(f"{printable(row.student)} {row.exercise}".strip() for row in unknown[:5])
        raise grading.NotJudged(
            f"{len(unknown)} answers could not be judged, and their points are unknown: {names}"
            f"{', ...' if unknown[5:] else ''}; grade them by hand, and report the line that their verdicts name"
        )


@learn.command
def course(*, out: Path, only: Texts = None, lessons: Path | None = None) -> None:
    """Build the instructor's kit: notebooks for students, notebooks with solutions, and a page of answers.

    The notebooks carry nbgrader's metadata, and the folder is laid out as nbgrader wants it; nbgrader is not needed to
    use them.

    Args:
        out: folder of the kit, new or empty.
        only: numbers of lessons: --only 103 201.
        lessons: folder of the lessons; by default here, tutorials/ here, or the checkout pmdkit runs from.
    """
    from pmdkit_course.kit import build  # imports nbformat and jupytext, which take a second

    for line in build(out, only, lessons):
        print(line)


def chosen(only: list[str] | None) -> list[Exercise]:
    """The exercises that count: of these lessons and ids, or all."""
    if not only:
        return [exercise(which) for which in ids()]
    lessons = exercises.lessons()
    found = [e for which in only for e in (exercises.of_lesson(which) if which in lessons else (exercise(which),))]
    return sorted(set(found), key=lambda e: e.id)
