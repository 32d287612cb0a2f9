"""What the processes of a run leave for the one that started them: that they are there, and why they left.

A folder on this machine, one file per process. launch.py makes sense of it.
"""

import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "PMDKIT_DESK"


@dataclass(frozen=True)
class Word:
    """What one process has left.

    Attributes:
        rank, pid: whose it is.
        code: its exit code; None while it works.
        sentence: why it left, for a person.
        consequence: it left because of another one.
        at: when, seconds of the system's clock.
    """

    rank: int
    pid: int
    code: int | None = None
    sentence: str = ""
    consequence: bool = False
    at: float = 0.0

    @property
    def broken(self) -> bool:
        """It left, and neither at the end of the run nor on request."""
        return self.code not in (None, 0, 75)


class Desk:
    """Where words are left.

    Args:
        path: an existing folder that all processes of a run see.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def here(cls) -> "Desk | None":
        """The desk of whoever started this process; None where nobody has one."""
        path = os.environ.get(VARIABLE)
        return None if path is None else cls(Path(path))

    def enter(self, rank: int) -> None:
        """This process works."""
        self.put(Word(rank, os.getpid()))

    def leave(self, rank: int, code: int, sentence: str = "", consequence: bool = False) -> None:
        """This process is about to end."""
        self.put(Word(rank, os.getpid(), code, sentence, consequence, time.time()))

    def put(self, word: Word) -> None:
        """Replaced in one piece: it is read at any moment, and the writer may be killed at any moment."""
        part = self.path / f"{word.rank}.part"
        part.write_text(json.dumps(asdict(word)))
        part.replace(self.path / f"{word.rank}.json")

    def words(self) -> list[Word]:
        """What lies there, the first to leave first."""
        found = [Word(**json.loads(path.read_text())) for path in self.path.glob("*.json")]
        return sorted(found, key=lambda word: (word.at, word.rank))
