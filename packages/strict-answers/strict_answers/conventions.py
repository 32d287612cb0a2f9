"""Which answers count as equal, row by row: conventions.toml decides, the other modules of this folder implement it.

These are choices, not mathematics: other checkers choose differently. The tests execute every row.
"""

import tomllib
from pathlib import Path
from typing import NamedTuple

from strict_answers import verdict


class Convention(NamedTuple):
    """One decision: how this answer is judged for this gold, and why."""

    what: str
    gold: str
    answer: str
    correct: bool
    path: verdict.Path
    why: str


TABLE = tuple(
    Convention(*row) for row in tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))["rows"]
)
