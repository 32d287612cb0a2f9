"""A figure with what a page needs beside it: alt text, what to see, the numbers drawn. How it is saved: style.py."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pmdkit.figures.style import render, save


@dataclass(frozen=True)
class Drawing:
    """A finished figure.

    Attributes:
        figure: free of pyplot; a notebook shows it, nothing else needs a display.
        alt: what the picture shows, for who cannot see it.
        sentence: what to see.
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
