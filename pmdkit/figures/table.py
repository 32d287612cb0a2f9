"""A table with what a page needs beside it: as Markdown, as CSV, as data. Which tables there are: __init__.py."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pmdkit.observe import files


@dataclass(frozen=True)
class Table:
    """A finished table.

    Attributes:
        title: what it is in the paper.
        columns: heads, with units.
        rows: cells as they are shown.
        sentence: what to see.
        data: the numbers, by name.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    sentence: str
    data: Mapping[str, np.ndarray[Any, Any]]

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.columns) for row in self.rows)

    def markdown(self) -> str:
        """The title, the table, the sentence."""
        lines = [list(self.columns), ["---"] * len(self.columns), *self.rows]
        table = "\n".join("| " + " | ".join(cell.replace("|", r"\|") for cell in line) + " |" for line in lines)
        return f"## {self.title}\n\n{table}\n\n{self.sentence}\n"

    def save(self, path: str | Path) -> list[Path]:
        """Write `path`.md and `path`.csv."""
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self.columns, *self.rows])
        written = []
        for kind, content in (("md", self.markdown()), ("csv", text.getvalue())):
            target = Path(path).with_name(f"{Path(path).name}.{kind}")
            target.parent.mkdir(parents=True, exist_ok=True)
            files.replace(target, content.encode(), files.PUBLIC)
            written.append(target)
        return written
