"""Rows of the table: what each claims (rows.toml), what a benchmark measured for it, and how the two are judged."""

import operator
import statistics
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

CLAIMS = Path(__file__).parents[1] / "rows.toml"
GOALS = {">=": operator.ge, "<=": operator.le}


@dataclass(frozen=True)
class Claim:
    """What a row is about.

    Attributes:
        key: benchmark/name.
        what, workload, peer: words; no peer where there is none.
        unit: of the result; "x" is a ratio, peer over pmdkit in time unless `what` says otherwise.
        goal: ">= 5" or "<= 5" in that unit, or nothing.
        limit: what bounds the result physically, in words.
    """

    key: str
    what: str
    workload: str
    peer: str = ""
    unit: str = "x"
    goal: str = ""
    limit: str = ""

    def met(self, value: float) -> bool:
        """Whether a value reaches the goal."""
        sign, bound = self.goal.split()
        return bool(GOALS[sign](value, float(bound)))


@dataclass(frozen=True)
class Measured:
    """The result of a row.

    Attributes:
        key: of its claim.
        values: [rounds] in the claim's unit; a row that needs no rounds, such as an error, has one value.
        readings: raw numbers by side, one per round: [wall, CPU] seconds where they are times.
        limit: the limit as measured along with the row, with its unit.
        times: [rounds] how many times the limit the row takes.
        note: what the reader should know.
        failed: why there are no values.
    """

    key: str
    values: list[float] = field(default_factory=list)
    readings: dict[str, Any] = field(default_factory=dict)
    limit: str = ""
    times: list[float] = field(default_factory=list)
    note: str = ""
    failed: str = ""

    def to_json(self) -> dict[str, Any]:
        """The row as a dict, without empty fields."""
        return {name: value for name, value in asdict(self).items() if value}


def claims() -> list[Claim]:
    """All claims, in the order of the table."""
    table = tomllib.loads(CLAIMS.read_text(encoding="utf-8"))["row"]
    return [Claim(**row) for row in table]


def benchmark_of(key: str) -> str:
    """The module that measures a row."""
    return key.split("/")[0]


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, minimum and maximum."""
    return statistics.median(values), min(values), max(values)
