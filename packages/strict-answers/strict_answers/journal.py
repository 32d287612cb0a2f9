"""Verdicts on disk, so that a resumed run gets the same verdict as before, even if it was a time-out."""

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path

from strict_answers.verdict import Verdict


class JournalDamaged(ValueError):
    """A line of a journal is not a verdict, so verdicts after it may be lost too."""


class VerdictJournal:
    """A file of JSON lines, append-only; the first verdict of a key counts.

    A line that a crash cut off is removed: a verdict is written before it is used, so this one never was.

    Raises:
        JournalDamaged: a whole line is not a verdict.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.verdicts: dict[str, Verdict] = {}
        if self.path.exists():
            data = self.path.read_bytes()
            whole = data.rfind(b"\n") + 1
            for number, line in enumerate(data[:whole].splitlines(), 1):
                try:
                    row = json.loads(line)
                    self.verdicts.setdefault(row.pop("key"), Verdict(**row))
                except (ValueError, TypeError, KeyError, AttributeError) as error:
                    raise JournalDamaged(
                        f"{self.path}, line {number} is not a verdict: {error}; "
                        "verdicts after it may be lost, move the file away to judge again"
                    ) from error
            if whole < len(data):
                os.truncate(self.path, whole)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()

    def get(self, key: str) -> Verdict | None:
        """The earlier verdict of a key, if there is one."""
        return self.verdicts.get(key)

    def append(self, verdicts: dict[str, Verdict]) -> None:
        """Write verdicts and flush them to disk; only then may they be used."""
        lines = [
            json.dumps({"key": key, **asdict(verdict)}, allow_nan=False) + "\n" for key, verdict in verdicts.items()
        ]
        with open(self.path, "ab") as file:
            file.write("".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())
        self.verdicts.update(verdicts)


def key_of(*parts: str) -> str:
    """The key of a verdict: a hash of the judge, the gold answer, the response and whatever else it depends on."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
