"""What a replica returns: the table and the curves of a patient's page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Panel:
    """One panel of the picture.

    Attributes:
        label: of the vertical axis, with units.
        lines: values by name; a value for each point of `Replica.across`, or fewer.
        log: a logarithmic axis.
        level: a dotted horizontal line.
    """

    label: str
    lines: Mapping[str, Sequence[float]]
    log: bool = False
    level: float | None = None


@dataclass(frozen=True)
class Replica:
    """What a replica found.

    Attributes:
        columns: heads of the table.
        rows: its cells, numbers or words.
        across: label of the horizontal axis.
        at: its points.
        panels: the picture.
        alt: what the picture shows, in words.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str | float]]
    across: str
    at: Sequence[float]
    panels: Sequence[Panel]
    alt: str

    def cell(self, row: str, column: str) -> float:
        """The number of a row, which begins with `row`, in a column."""
        (found,) = (cells for cells in self.rows if cells[0] == row)
        return float(found[list(self.columns).index(column)])

    def table(self) -> str:
        """The table in Markdown."""
        lines = [self.columns, ["---"] * len(self.columns), *self.rows]
        return "".join(
            "| " + " | ".join(f"{c:.3g}" if isinstance(c, float) else str(c) for c in line) + " |\n" for line in lines
        )
