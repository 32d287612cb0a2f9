"""A finished figure with its alt text, the sentence beside it, and the numbers that are drawn."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pmdkit.figures.style import render, save


@dataclass(frozen=True)
class Drawing:
    """A finished figure, with the text that a page shows beside it.

    Attributes:
        figure: made without pyplot; a notebook shows it, and no display is needed.
        alt: what the picture shows, for readers who cannot see it.
        sentence: what to notice.
        data: the arrays drawn, by name.
    """

    figure: Figure
    alt: str
    sentence: str
    data: Mapping[str, np.ndarray[Any, Any]]

    def __post_init__(self) -> None:
        self.figure.set_label(self.alt)

    def save(self, path: str | Path) -> list[Path]:
        """Write PNG and SVG; `path` has no suffix."""
        return save(self.figure, path)

    def _repr_png_(self) -> bytes:
        return render(self.figure, "png")
