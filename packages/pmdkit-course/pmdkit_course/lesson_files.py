"""Where the lessons are. A lesson is a NNN_name.ipynb beside a NNN_name.py; a wheel ships them as data."""

import functools
import re
import shutil
import tempfile
from collections.abc import Iterable
from pathlib import Path

from pmdkit.errors import UsageError, unknown
from pmdkit_course.notebooks import SUFFIXES

FOLDERS = (".", "tutorials", "lessons")
"Where to look for a learner's notebooks, relative to the working directory."
NAME = re.compile(r"[0-9]{3}_\w+")


def lesson_notebook(number: str, folder: Path | None = None) -> Path:
    """The notebook of a lesson, such as "103", in a folder; by default in the first of `FOLDERS` that has it."""
    folders = [Path(name) for name in FOLDERS] if folder is None else [folder]
    for each in folders:
        found = sorted(each.glob(f"{number}_*.ipynb")) or sorted(each.glob(f"{number}_*.py"))
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise UsageError(f"lesson {number} is here more than once: {names}; say which: check {number} FILE")
        if found:
            return found[0]
    places = ", ".join(f"{each}/" for each in folders)
    raise UsageError(
        f"no notebook {number}_*.ipynb in {places}; copy them here with pmdkit learn start lessons, or give a path"
    )


def lessons_folder(given: Path | None, among: Iterable[str]) -> Path:
    """The folder of the course's lessons as .py files: the given one, or the first of `FOLDERS` and `shipped()`.

    It contains at least one of the lessons with these numbers.
    """
    places = [given] if given else [Path(name) for name in FOLDERS] + [shipped()]
    for place in places:
        if any(list(place.glob(f"{number}_*.py")) for number in among):
            return place
    if given:
        raise UsageError(f"{given} holds no lesson such as 103_name.py; expected the tutorials/ folder of a checkout")
    raise UsageError(f"no lessons here and none in {shipped()}; install pmdkit again, or give --lessons FOLDER")


def shipped() -> Path:
    """The folder of lessons that comes with the package, in a checkout or a wheel. It is read, never changed."""
    inside = Path(__file__).parent / "tutorials"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "tutorials"


def copy_lessons(folder: Path) -> list[Path]:
    """Copy the lessons into a new or empty folder, for a learner to work in; returns the notebooks.

    Raises:
        UsageError: the folder is not empty. Answers are never overwritten.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists and is not empty; nothing was changed: give a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    copied = [folder / path.name for path in sorted(shipped().iterdir()) if path.suffix in (*SUFFIXES, ".md")]
    for path in copied:
        path.write_bytes((shipped() / path.name).read_bytes())
    return [path for path in copied if path.suffix == ".ipynb"]


@functools.cache
def stored_run(name: str) -> Path:
    """Unpack a run that comes with the lessons. Every call in a process returns the same folder, which may be changed.

    Args:
        name: "first", ten steps of SmolLM2 with four problems in each, or "planted", steps with a fault in them.
    """
    known = {path.stem: path for path in (Path(__file__).parent / "stored_runs").glob("*.zip")}
    if name not in known:
        raise ValueError(unknown("stored run", name, known))
    folder = tempfile.mkdtemp(prefix="pmdkit-")
    shutil.unpack_archive(known[name], folder)
    return Path(folder)


def lesson_files(place: Path) -> list[Path]:
    """The lessons of a folder in order, as .py files."""
    return sorted(path for path in place.glob("[0-9]*.py") if NAME.fullmatch(path.stem))
