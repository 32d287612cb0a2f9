"""The parts of a reproduction and their results, and the choice of parts that fit a time budget.

A part returns pieces: pictures, tables, checks. A piece is kept as JSON beside its pictures, and the report
is made from these alone. Two pieces with the same name are the same thing at different effort; the report shows the
later one.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from pmdkit.launchers import Launcher
from pmdkit_lab.figures.drawing import Drawing

# where a number in the report comes from, as shown next to it
SCALES = {
    "exact": "exact",
    "simulated": "simulated",
    "stored": "toy scale, stored runs",
    "toy": "toy scale, runs of this report",
    "starter-stored": "starter scale, stored runs",
    "starter": "starter scale, runs of this report",
    "paper": "arithmetic on the paper's numbers",
}


@dataclass(frozen=True)
class Picture:
    """A figure, saved as PNG and SVG.

    Attributes:
        name: name of its files, without suffix.
        title: what it is in the paper, or here.
        scale: a key of SCALES.
        about: seeds and other details of its kind, such as "5 seeds"; may be empty.
        see: what to look for in it.
        alt: text alternative, for those who cannot see it.
    """

    kind: ClassVar[str] = "picture"
    name: str
    title: str
    scale: str
    about: str
    see: str
    alt: str


@dataclass(frozen=True)
class Sheet:
    """A table. Attributes as for `Picture`, and columns: headings with units; rows: cells as shown."""

    kind: ClassVar[str] = "sheet"
    name: str
    title: str
    scale: str
    about: str
    columns: list[str]
    rows: list[list[str]]
    see: str

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows), self.name


@dataclass(frozen=True)
class ClaimCheck:
    """A claim, its test cases, and whether the worst measured value, with its unit, is within the limit."""

    kind: ClassVar[str] = "check"
    name: str
    claim: str
    tried: str
    found: str
    allowed: str
    held: bool


@dataclass(frozen=True)
class Claims:
    """Rows of the ledger, as `pmdkit ledger --json` gives them."""

    kind: ClassVar[str] = "claims"
    name: str
    rows: list[dict[str, str]] = field(default_factory=list)


Piece = Picture | Sheet | ClaimCheck | Claims
Result = dict[str, Any]  # of a part: its state, seconds, and pieces as JSON


def keep(drawing: Drawing, folder: Path, name: str, title: str, scale: str, about: str = "") -> Picture:
    """Save a drawing in the folder of its part."""
    drawing.save(folder / name)
    return Picture(name, title, scale, about, drawing.sentence, drawing.alt)


RESERVED = 5.0  # seconds of a budget reserved for starting Python and for the last report
LONGEST = 24 * 60  # minutes; the largest budget that `budget_of` tries


@dataclass(frozen=True)
class PartContext:
    """The inputs of a part.

    Attributes:
        out: folder of the reproduction.
        folder: folder of the part, which it may write to.
        launcher: makes the runs of parts that have any.
        log: called with a sentence about each step of the work.
    """

    out: Path
    folder: Path
    launcher: Launcher
    log: Callable[[str], None]

    @property
    def sweeps(self) -> Path:
        """Folder of the sweeps, in which experiments share their runs."""
        return self.out / "sweeps"


@dataclass(frozen=True)
class Part:
    """A piece of work whose result is kept, and that is never done twice.

    Attributes:
        name: name of its folder.
        chapter: chapter of the report, a key of parts.CHAPTERS.
        seconds: estimated time on one core of the machine that the list was measured on.
        needs: names of the parts whose results it uses.
        parallel: its work is done by separate processes, several at a time if there are cores.
    """

    name: str
    title: str
    chapter: str
    about: str
    seconds: float
    make: Callable[[PartContext], list[Piece]]
    needs: tuple[str, ...] = ()
    parallel: bool = False

    def cost(self, jobs: int) -> float:
        """Estimated seconds from start to end."""
        return self.seconds / jobs if self.parallel else self.seconds


def choose(parts: Sequence[Part], budget: float, jobs: int) -> list[Part]:
    """The parts that fit a budget in seconds: in order of value, each part that still fits and has what it needs."""
    chosen: list[Part] = []
    left = budget - RESERVED
    for part in parts:
        if part.cost(jobs) <= left and set(part.needs) <= {other.name for other in chosen}:
            chosen.append(part)
            left -= part.cost(jobs)
    return chosen


def budget_of(part: Part, parts: Sequence[Part], jobs: int) -> str:
    """The smallest budget, in whole minutes, that includes a part."""
    fitting = (minutes for minutes in range(1, LONGEST) if part in choose(parts, 60.0 * minutes, jobs))
    return f"{minutes}m" if (minutes := next(fitting, None)) else f"more than {LONGEST // 60}h"


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
