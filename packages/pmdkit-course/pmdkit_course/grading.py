"""Grade a folder of submissions: who handed in what, a verdict on each answer, a table. Nothing is written."""

import csv
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from pmdkit.errors import UsageError, printable
from pmdkit_course.answers import Code, answer_to, exercises_in
from pmdkit_course.exercises import AnswerVerdict, Exercise
from pmdkit_course.notebooks import SUFFIXES, NotebookCell, parsed, read

ABSENT = "Not handed in."
MOST_FILES = 20
"Per student. Each file may hold an answer to every exercise, and each answer takes time."
Judge = Callable[[Exercise, Code], AnswerVerdict]
LOOK = " Look at its code: it names the place of the solutions."


def submissions(folder: Path) -> dict[str, list[Path]]:
    """The files that each student handed in, by name. A file directly in the folder is a student named after the file.

    Links to folders are not followed; a notebook that is a link or a pipe is listed here, and refused when it is read.
    Hidden files (Jupyter's checkpoints) are ignored. A student's folder without files is an empty submission.

    Raises:
        UsageError: the path is not a folder, or there is no submission in it.
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
        raise UsageError(f"{folder} holds no .ipynb and no .py; expected {folder}/STUDENT/NOTEBOOK.ipynb")
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
    """One line of the result. If a file could not be read, `exercise` is empty and `verdict` says which file."""

    student: str
    exercise: str
    right: bool
    verdict: str
    seconds: float


def grade(
    handed_in: dict[str, list[Path]],
    exercises: Sequence[Exercise],
    judge: Judge,
    log: Callable[[str], None] = lambda line: None,
) -> list[Grade]:
    """A row for every student and every exercise that anybody handed in, ordered by name and by course.

    If two files of a student answer the same exercise, the better one counts. `log` receives a line per student.
    """
    rows: dict[str, list[Grade]] = {student: [] for student in handed_in}
    files: dict[str, list[list[NotebookCell]]] = {student: [] for student in handed_in}
    for student, paths in handed_in.items():
        complaints = [f"{len(paths)} files; only the first {MOST_FILES} count."] if len(paths) > MOST_FILES else []
        for path in paths[:MOST_FILES]:
            try:
                files[student].append(read(path, links=False))
            except UsageError as problem:
                complaints.append(printable(f"{problem}."))
        rows[student] += [Grade(student, "", False, complaint, 0.0) for complaint in complaints]
    asked = {e.id for own in files.values() for cells in own for e in exercises_in(cells, exercises)}
    for student, own in files.items():
        for exercise in (e for e in exercises if e.id in asked):
            start, verdict, mark = time.perf_counter(), AnswerVerdict(False, ABSENT), ""
            for code in filter(None, (answer_to(exercise, cells) for cells in own)):
                if not verdict.right:
                    verdict, mark = judge(exercise, code), LOOK if code.reads_solutions else ""
            seconds = round(time.perf_counter() - start, 2)
            rows[student].append(Grade(student, exercise.id, verdict.right, verdict.says + mark, seconds))
        parsed.cache_clear()  # hostile code can make it large
        log(f"{printable(student)}: {sum(row.right for row in rows[student])} of {len(asked)} right")
    return [row for student in handed_in for row in rows[student]]


def to_csv(rows: Sequence[Grade]) -> str:
    """The rows as CSV for a spreadsheet, which must not mistake a name for a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([field.name for field in fields(Grade)])
    for row in rows:
        words = (row.student, row.exercise, "yes" if row.right else "no", row.verdict)
        writer.writerow([*map(harmless, words), f"{row.seconds:.2f}"])
    return text.getvalue()


def harmless(text: str) -> str:
    """Text that a spreadsheet shows and does not compute: on one line, quoted if it begins like a formula."""
    text = "".join(char if char.isprintable() else " " for char in text)
    return f"'{text}" if text.lstrip().startswith(("=", "+", "-", "@")) else text


def summary(rows: Sequence[Grade]) -> str:
    """One line with the counts of students, exercises and verdicts."""
    students, exercises = {row.student for row in rows}, {row.exercise for row in rows if row.exercise}
    right, absent = sum(row.right for row in rows), sum(row.verdict == ABSENT for row in rows)
    unread = sum(not row.exercise for row in rows)
    wrong = len(rows) - right - absent - unread
    line = f"{len(students)} students, {len(exercises)} exercises: {right} right, {wrong} wrong, {absent} not handed in"
    return line + (f", {unread} files not read" if unread else "")
