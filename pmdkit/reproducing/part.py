"""What a part of a reproduction is, and which parts a budget holds. The parts themselves: parts.py."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pmdkit.errors import UsageError
from pmdkit.reproducing.pieces import Piece

RESERVED = 5.0  # seconds of a budget for starting Python and for the last report
LONGEST = 24 * 60  # minutes that are tried when a budget is looked for
UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}


@dataclass(frozen=True)
class Bench:
    """What a part works with.

    Attributes:
        out: folder of the reproduction.
        folder: of the part; it may write there.
        jobs: runs at a time, for parts that start processes.
        say: told about progress.
    """

    out: Path
    folder: Path
    jobs: int
    say: Callable[[str], None]

    @property
    def sweeps(self) -> Path:
        """Folder of the sweeps: experiments share their runs in it."""
        return self.out / "sweeps"

    @property
    def runs(self) -> Path:
        """Folder of single runs."""
        return self.out / "runs"


@dataclass(frozen=True)
class Part:
    """A piece of work whose result is kept, and never done twice.

    Attributes:
        name: of its folder.
        title: heading in the report.
        chapter: of the report, a key of parts.CHAPTERS.
        about: what it computes, one sentence.
        seconds: estimate, of one core of the machine that the list was measured on.
        make: computes the pieces.
        needs: parts whose results it works with.
        apart: its work is done by processes of its own, several at a time where there are cores.
    """

    name: str
    title: str
    chapter: str
    about: str
    seconds: float
    make: Callable[[Bench], list[Piece]]
    needs: tuple[str, ...] = ()
    apart: bool = False

    def cost(self, jobs: int) -> float:
        """Estimated seconds from begin to end."""
        return self.seconds / jobs if self.apart else self.seconds


def choose(parts: Sequence[Part], budget: float, jobs: int) -> list[Part]:
    """The parts that fit a budget of so many seconds: in order of value, each that still fits with what it needs."""
    chosen: list[Part] = []
    left = budget - RESERVED
    for part in parts:
        if part.cost(jobs) <= left and set(part.needs) <= {other.name for other in chosen}:
            chosen.append(part)
            left -= part.cost(jobs)
    return chosen


def budget_of(part: Part, parts: Sequence[Part], jobs: int) -> str:
    """The smallest whole number of minutes that holds a part."""
    for minutes in range(1, LONGEST):
        if part in choose(parts, 60.0 * minutes, jobs):
            return f"{minutes}m"
    return f"more than {LONGEST // 60}h"


def duration(text: str) -> float:
    """Seconds of a text such as 2m, 90s, 1h or 1h30m."""
    found = re.fullmatch(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?", text.strip())
    seconds = 0.0
    if found is not None:
        seconds = sum(float(number or 0) * unit for number, unit in zip(found.groups(), UNITS.values(), strict=True))
    if seconds <= 0:
        raise UsageError(f"--budget is '{text}'; expected a duration such as 2m, 20m, 90m or 1h30m")
    return seconds


def clock(seconds: float) -> str:
    """`90s` as `1m30s`: a duration that `duration` reads."""
    whole = round(seconds)
    hours, rest = divmod(whole, 3600)
    minutes, rest = divmod(rest, 60)
    told = "".join(f"{value}{unit}" for value, unit in zip((hours, minutes, rest), UNITS, strict=True) if value)
    return told or "0s"
