"""Grade a folder of submissions: who handed in what, a verdict on each answer, a table. Nothing is written."""

import csv
import io
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
COLUMNS = ("student", "exercise", "right", "verdict", "seconds")


@dataclass(frozen=True)
class Submission:
    """What a student handed in. Attributes: student; files, in the order of their names."""

    student: str
    files: tuple[Path, ...]


def submissions(folder: Path) -> list[Submission]:
    """Who handed in what, sorted by name. A file directly in the folder counts as a student named after the file.

    Links to folders are not followed; a notebook that is a link or a pipe is listed here, and refused when it is read.
    Hidden files (Jupyter's checkpoints) are ignored. A student's folder without files is an empty submission.

    Raises:
        UsageError: the path is not a folder, or there is no submission in it.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; expected one with a folder per student, or with their notebooks")
    files: dict[str, tuple[Path, ...]] = {}  # alice.ipynb and alice.py are one student
    for entry in visible(folder):
        if is_folder(entry):
            below = [entry, *(child for child in visible(entry) if is_folder(child))]
            own = tuple(path for place in below for path in visible(place) if counts(path))
            files[entry.name] = files.get(entry.name, ()) + own
        elif counts(entry):
            files[entry.stem] = (*files.get(entry.stem, ()), entry)
    if not any(files.values()):
        raise UsageError(f"{folder} holds no .ipynb and no .py; expected {folder}/STUDENT/NOTEBOOK.ipynb")
    return [Submission(student, paths) for student, paths in files.items()]


def visible(folder: Path) -> list[Path]:
    """The contents of a folder, sorted, without hidden files; empty if the folder cannot be read."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except OSError:
        return []


def is_folder(path: Path) -> bool:
    """Whether a path is a folder, and not a link to one."""
    return path.is_dir() and not path.is_symlink()


def counts(path: Path) -> bool:
    """Whether a path is a learner's file, judging by its name."""
    return path.suffix in SUFFIXES and not is_folder(path)


@dataclass(frozen=True)
class Grade:
    """One line of the result. If a file could not be read, `exercise` is empty and `verdict` says which file."""

    student: str
    exercise: str
    right: bool
    verdict: str
    seconds: float


def grade(
    handed_in: Sequence[Submission],
    exercises: Sequence[Exercise],
    judge: Judge,
    log: Callable[[str], None] = lambda line: None,
) -> list[Grade]:
    """A row for every student and every exercise that anybody handed in, ordered by name and by course.

    If two files of a student answer the same exercise, the better one counts. `log` receives a line per student.
    """
    files = {each.student: opened(each) for each in handed_in}
    asked = set()
    for cells, _ in files.values():
        asked |= {e.id for one in cells.values() for e in exercises_in(one, exercises)}
        parsed.cache_clear()
    rows: list[Grade] = []
    for each in handed_in:
        cells, complaints = files[each.student]
        new = [Grade(each.student, "", False, complaint, 0.0) for complaint in complaints]
        for exercise in exercises:
            if exercise.id in asked:
                new.append(graded(each.student, exercise, list(cells.values()), judge))
        parsed.cache_clear()  # hostile code can make it large
        log(f"{printable(each.student)}: {sum(row.right for row in new)} of {len(asked)} right")
        rows += new
    return rows


def opened(submission: Submission) -> tuple[dict[Path, list[NotebookCell]], list[str]]:
    """The cells of a student's files, and complaints about files that cannot be read."""
    cells: dict[Path, list[NotebookCell]] = {}
    complaints = []
    for path in submission.files[:MOST_FILES]:
        try:
            cells[path] = read(path, links=False)
        except UsageError as problem:
            complaints.append(printable(f"{problem}."))
    if len(submission.files) > MOST_FILES:
        complaints.append(f"{len(submission.files)} files; only the first {MOST_FILES} count.")
    return cells, complaints


def graded(student: str, exercise: Exercise, files: list[list[NotebookCell]], judge: Judge) -> Grade:
    """The row for a student and an exercise."""
    start = time.perf_counter()
    verdict, mark = AnswerVerdict(False, ABSENT), ""
    for cells in files:
        code = answer_to(exercise, cells)
        if code is not None and not verdict.right:
            verdict, mark = judge(exercise, code), LOOK if code.reads_solutions else ""
    return Grade(student, exercise.id, verdict.right, verdict.says + mark, round(time.perf_counter() - start, 2))


def to_csv(rows: Sequence[Grade]) -> str:
    """The rows as CSV for a spreadsheet, which must not mistake a name for a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
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
