"""Grade a folder of submissions: who handed in what, a verdict on each answer, a table. Nothing is written."""

import csv
import io
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from pmdkit.errors import PmdkitError, UsageError, first_line, printable
from pmdkit_course.answers import Code, answer_to, exercises_in
from pmdkit_course.exercises import AnswerVerdict, Exercise
from pmdkit_course.notebooks import SUFFIXES, NotebookCell, parsed, read

ABSENT = "Not handed in."
MOST_FILES = 20
"Per student. Each file may hold an answer to every exercise, and each answer takes time."
Judge = Callable[[Exercise, Code], AnswerVerdict]
LOOK = " Look at its code: it names the place of the solutions."


class NoAnswers(UsageError):
    """Nobody handed in anything that can be graded."""

    exit_code = 8


class NotJudged(PmdkitError):
    """Some answers could not be judged: their points are unknown, those of all others are as printed."""

    exit_code = 9


def submissions(folder: Path) -> dict[str, list[Path]]:
    """The files that each student handed in, by name. A file directly in the folder is a student named after the file.

    Links to folders are not followed; a notebook that is a link or a pipe is listed here, and refused when it is read.
    Hidden files (Jupyter's checkpoints) are ignored. A student's folder without files is an empty submission.

    Raises:
        UsageError: the path is not a folder.
        NoAnswers: there is no submission in it.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; expected one with a folder per student, or with their notebooks")
    files: dict[str, list[Path]] = {}  # alice.ipynb and alice.py are one student
    for entry in visible(folder):
        if is_folder(entry):
            below = [entry, *filter(is_folder, visible(entry))]
            own = [path for place in below for path in visible(place)]
            files.setdefault(entry.name, []).extend(path for path in own if path.suffix in SUFFIXES)
        elif entry.suffix in SUFFIXES:
            files.setdefault(entry.stem, []).append(entry)
    if not any(files.values()):
        raise NoAnswers(f"{folder} holds no .ipynb and no .py; expected {folder}/STUDENT/NOTEBOOK.ipynb")
    return files


def visible(folder: Path) -> list[Path]:
    """The contents of a folder, sorted, without hidden files; empty if the folder cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []


def is_folder(path: Path) -> bool:
    """Whether a path is a folder, and not a link to one."""
    return path.is_dir() and not path.is_symlink()


@dataclass(frozen=True)
class Grade:
    """One line of the result. If a file could not be read, `exercise` is empty and `verdict` says which file.

    `right` is None if the answer, or the file, could not be judged: `verdict` says why.
    """

    student: str
    exercise: str
    right: bool | None
    verdict: str
    seconds: float


def grade(
    handed_in: dict[str, list[Path]],
    exercises: Sequence[Exercise],
    judge: Judge,
    log: Callable[[str], None] = lambda line: None,
) -> list[Grade]:
    """A row for every student and every exercise that anybody handed in, and one for each file that cannot be read.

    Students and exercises keep their order. Of a student, the first MOST_FILES files count; if two of them answer the
    same exercise, the better answer counts. `log` receives a line per student. A fault in judging costs the answer that
    it happens to, and no other.
    """
    rows: dict[str, list[Grade]] = {student: [] for student in handed_in}
    files: dict[str, list[list[NotebookCell]]] = {student: [] for student in handed_in}
    asked: set[str] = set()
    for student, paths in handed_in.items():
        if len(paths) > MOST_FILES:
            rows[student].append(
                Grade(student, "", False, f"{len(paths)} files; only the first {MOST_FILES} count.", 0.0)
            )
        for path in paths[:MOST_FILES]:
            try:
                cells = read(path, links=False)
                asked |= {e.id for e in exercises_in(cells, exercises)}
                files[student].append(cells)
            except UsageError as problem:
                rows[student].append(Grade(student, "", False, printable(f"{problem}."), 0.0))
            except Exception as fault:
                rows[student].append(Grade(student, "", None, f"{printable(path.name)}: {not_judged(fault)}", 0.0))
    for student, own in files.items():
        for exercise in (e for e in exercises if e.id in asked):
            start, verdict, mark = time.perf_counter(), AnswerVerdict(False, ABSENT), ""
            for cells in own:
                try:
                    code = answer_to(exercise, cells)
                    new = judge(exercise, code) if code and not verdict.right else None
                except Exception as fault:
                    code, new = None, AnswerVerdict(None, not_judged(fault))
                if new and (new.right or verdict.right is False):  # one that may be right comes before a wrong one
                    verdict, mark = new, LOOK if code and code.reads_solutions else ""
            seconds = round(time.perf_counter() - start, 2)
            rows[student].append(Grade(student, exercise.id, verdict.right, verdict.says + mark, seconds))
        parsed.cache_clear()  # hostile code can make it large
        log(f"{printable(student)}: {sum(row.right is True for row in rows[student])} of {len(asked)} right")
    return [row for student in handed_in for row in rows[student]]


def not_judged(fault: Exception) -> str:
    """The verdict where judging failed: what happened, and in which line of ours."""
    place = fault.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = f" ({os.path.basename(place.tb_frame.f_code.co_filename)}:{place.tb_lineno})" if place else ""
    return printable(f"Could not be judged: {type(fault).__name__}, {first_line(fault)[:80]}{where}.")


def to_csv(rows: Sequence[Grade]) -> str:
    """The rows as CSV for a spreadsheet, which must not mistake a name for a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(Grade)])
    for row in rows:
        words = (row.student, row.exercise, in_word(row), row.verdict)
        writer.writerow([*map(harmless, words), f"{row.seconds:.2f}"])
    return text.getvalue()


def in_word(row: Grade) -> str:
    """Whether a row is right, in a word."""
    return "unknown" if row.right is None else "yes" if row.right else "no"


def harmless(text: str) -> str:
    """Text that a spreadsheet shows and does not compute: on one line, quoted if it begins like a formula."""
    text = "".join(char if char.isprintable() else " " for char in text)
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text


def summary(rows: Sequence[Grade]) -> str:
    """One line with the counts of students, exercises and verdicts."""
    students, exercises = {row.student for row in rows}, {row.exercise for row in rows if row.exercise}
    right, absent = sum(row.right is True for row in rows), sum(row.verdict == ABSENT for row in rows)
    unread, unknown = (
        sum(not row.exercise for row in rows),
        sum(bool(row.exercise) and row.right is None for row in rows),
    )
    wrong = len(rows) - right - absent - unread - unknown
    line = f"{len(students)} students, {len(exercises)} exercises: {right} right, {wrong} wrong, {absent} not handed in"
    line += f", {unknown} not judged" if unknown else ""
    return line + (f", {unread} files not read" if unread else "")
