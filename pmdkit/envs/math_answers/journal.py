"""Verdicts on disk: a resumed run gets the verdict it got before, also where it was a time-out."""

import hashlib
import json
import os
from dataclasses import asdict
from pathlib import Path

from pmdkit.envs.math_answers.verdict import Verdict
from pmdkit.errors import ResumeRefused


def key_of(identity: str, gold: str, response: str) -> str:
    """The name of a verdict: who judges, against what, what."""
    return hashlib.sha256(json.dumps([identity, gold, response]).encode()).hexdigest()


class Journal:
    """A file of JSON lines, append-only; the first verdict of a key counts.

    A last line without its end was being written when the process died: it is dropped from the file.
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
                    raise ResumeRefused(
                        f"{self.path}, line {number} is no verdict: {error}; "
                        "verdicts after it may be lost, move the file away to judge again"
                    ) from error
            if whole < len(data):
                os.truncate(self.path, whole)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.touch()

    def get(self, key: str) -> Verdict | None:
        """What was said before."""
        return self.verdicts.get(key)

    def append(self, verdicts: dict[str, Verdict]) -> None:
        """Write and flush to the disk; only then may they be used."""
        lines = [
            json.dumps({"key": key, **asdict(verdict)}, allow_nan=False) + "\n" for key, verdict in verdicts.items()
        ]
        with open(self.path, "ab") as file:
            file.write("".join(lines).encode())
            file.flush()
            os.fsync(file.fileno())
        self.verdicts.update(verdicts)
