"""What a replica returns: the table and the curves of a patient's page."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Rows = dict[str, list[float | str]]
Lines = dict[str, Sequence[float]]


@dataclass(frozen=True)
class Replica:
    """What a replica found.

    Attributes:
        columns: heads of the table.
        rows: its cells, by the name of the row.
        panels: lines by name, by the label of their axis.
        across: label of the horizontal axis.
        at: its points; without it, 0, 1, 2 and so on.
        log: logarithmic vertical axes.
        level: a dotted horizontal line.
    """

    columns: Sequence[str]
    rows: Mapping[str, Sequence[float | str]]
    panels: Mapping[str, Mapping[str, Sequence[float]]]
    across: str = "step"
    at: Sequence[float] | None = None
    log: bool = False
    level: float | None = None

    def table(self) -> str:
        """The table in Markdown."""
        rows = [self.columns, ["---"] * len(self.columns), *((name, *row) for name, row in self.rows.items())]
        cells = ([f"{cell:.3g}" if isinstance(cell, float) else str(cell) for cell in row] for row in rows)
        return "".join("| " + " | ".join(row) + " |\n" for row in cells)
