"""Finds what was handed in: a folder per student, nbgrader's student/assignment/, or files that lie side by side."""

from dataclasses import dataclass
from pathlib import Path

from pmdkit.errors import UsageError

SUFFIXES = (".ipynb", ".py")


@dataclass(frozen=True)
class Submission:
    """Attributes: student; files, in the order of their names."""

    student: str
    files: tuple[Path, ...]


def submissions(folder: Path) -> list[Submission]:
    """Who handed in what, by name. A file that lies in the folder itself is a student of its own name.

    Links are not followed and hidden files (checkpoints of Jupyter) are not looked at. A student's folder without any
    file is a submission of nothing.

    Raises:
        UsageError: the folder is none, or holds nothing.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder; expected one with a folder per student, or with their notebooks")
    found = []
    for entry in sorted(visible(folder)):
        if entry.is_dir():
            below = [entry, *sorted(child for child in visible(entry) if child.is_dir())]
            files = [path for place in below for path in sorted(visible(place)) if counts(path)]
            found.append(Submission(entry.name, tuple(files)))
        elif counts(entry):
            found.append(Submission(entry.stem, (entry,)))
    if not any(each.files for each in found):
        raise UsageError(f"{folder} holds no .ipynb and no .py; expected {folder}/STUDENT/NOTEBOOK.ipynb")
    return merged(found)


def visible(folder: Path) -> list[Path]:
    """What lies in a folder, without links and hidden things."""
    return [path for path in folder.iterdir() if not path.name.startswith(".") and not path.is_symlink()]


def counts(path: Path) -> bool:
    """Whether a path is a file of a learner."""
    return path.is_file() and path.suffix in SUFFIXES


def merged(found: list[Submission]) -> list[Submission]:
    """alice.ipynb and alice.py are one student."""
    files: dict[str, tuple[Path, ...]] = {}
    for each in found:
        files[each.student] = files.get(each.student, ()) + each.files
    return [Submission(student, paths) for student, paths in files.items()]
