"""Where the lessons are: a folder of notebooks NNN_name.ipynb, each beside a NNN_name.py. A wheel carries none."""

import re
from collections.abc import Iterable
from pathlib import Path

from pmdkit.errors import UsageError

FOLDERS = (".", "tutorials")
"Where a learner's notebooks are looked for, relative to where the command was started."
NAME = re.compile(r"[0-9]{3}_\w+")


def notebook(number: str, folder: Path | None = None) -> Path:
    """The notebook of a lesson, "103".

    Args:
        number: of the lesson.
        folder: where it lies; by default here or in tutorials/ here.
    """
    folders = [Path(name) for name in FOLDERS] if folder is None else [folder]
    for each in folders:
        found = sorted(each.glob(f"{number}_*.ipynb")) or sorted(each.glob(f"{number}_*.py"))
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise UsageError(f"lesson {number} is here more than once: {names}; say which: check {number} FILE")
        if found:
            return found[0]
    places = " and ".join(f"{each}/" for each in folders)
    raise UsageError(f"no notebook {number}_*.ipynb in {places}; give its path, or start in the folder of the lessons")


def folder(given: Path | None, among: Iterable[str]) -> Path:
    """The folder of the course's lessons as .py files, which a checkout has.

    Args:
        given: the user's choice.
        among: numbers of lessons, one of which must be there.
    """
    places = [given] if given else [Path(name) for name in FOLDERS] + [Path(__file__).parents[2] / "tutorials"]
    for place in places:
        if any(list(place.glob(f"{number}_*.py")) for number in among):
            return place
    if given:
        raise UsageError(f"{given} holds no lesson such as 103_name.py; expected the tutorials/ folder of a checkout")
    raise UsageError(
        "no lessons here: an installed pmdkit carries the exercises and not the notebooks. "
        "Get the sources (git clone), and start in their folder or give --lessons PATH/tutorials"
    )


def sources(place: Path) -> list[Path]:
    """The lessons of a folder in order, as .py files."""
    return sorted(path for path in place.glob("[0-9]*.py") if NAME.fullmatch(path.stem))
