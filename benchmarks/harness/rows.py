"""Rows of the table: what each claims (rows.toml), what a benchmark measured for it, and how the two are judged."""

import operator
import statistics
import tomllib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
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
        goal_avx2: the goal where the processor has no AVX-512, if it is another one.
        limit: what bounds the result physically, in words.
    """

    key: str
    what: str
    workload: str
    peer: str = ""
    unit: str = "x"
    goal: str = ""
    limit: str = ""
    goal_avx2: str = ""

    def on(self, processor: str) -> "Claim":
        """The claim as it is made for a processor, whose name comes from `machine.processor`."""
        return replace(self, goal=self.goal_avx2) if self.goal_avx2 and "AVX-512" not in processor else self

    def met(self, value: float) -> bool:
        """Whether a value reaches the goal."""
        sign, bound = self.goal.split()
        return bool(GOALS[sign](value, float(bound)))


@dataclass(frozen=True)
class Measured:
    """What came of a row.

    Attributes:
        key: of its claim.
        values: [rounds] in the claim's unit; one that needs no rounds, such as an error, has one.
        readings: raw numbers by side, one a round: [wall, CPU] seconds where they are times.
        limit: the limit as it was measured beside the row, with its unit.
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
        """Without what is empty."""
        return {name: value for name, value in asdict(self).items() if value}


def claims() -> list[Claim]:
    """All, in the order of the table."""
    table = tomllib.loads(CLAIMS.read_text(encoding="utf-8"))["row"]
    return [Claim(**row) for row in table]


def benchmark_of(key: str) -> str:
    """The module that measures a row."""
    return key.split("/")[0]


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, least and most."""
    return statistics.median(values), min(values), max(values)
