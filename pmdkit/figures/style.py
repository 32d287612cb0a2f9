"""How figures look and are saved: a palette, a common style, and the same bytes for the same figure."""

from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from cycler import cycler
from matplotlib.figure import Figure

from pmdkit.observe import files

# Okabe and Ito's palette: its colours differ under every common kind of colour blindness. Orange, sky and purple are
# darker than theirs, for a contrast of 3 to 1 with paper.
BLACK, ORANGE, SKY, GREEN = "#000000", "#BF8300", "#3A93CB", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#C06D9B", "#666666"

RIGHT, WRONG = GREEN, PURPLE

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "mathtext.fontset": "dejavusans",
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.title_fontsize": 8,
    "legend.frameon": True,
    "legend.framealpha": 0.9,
    "legend.edgecolor": "0.85",
    "legend.handlelength": 2.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.prop_cycle": cycler(
        color=[BLUE, VERMILLION, GREEN, ORANGE], linestyle=["-", (0, (5, 1.6)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5))]
    ),
    "grid.color": "0.9",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 4,
    "figure.figsize": (6.0, 3.6),
    "figure.dpi": 110,
    "figure.constrained_layout.use": True,
    "savefig.dpi": 200,
    "svg.hashsalt": "pmdkit",
    "svg.fonttype": "path",
}


def style() -> AbstractContextManager[Any]:
    """Set the look of figures: `style()` from here on, `with style():` for a block."""
    params: Any = matplotlib.rcParams
    before = {key: params[key] for key in RC}
    params.update(RC)
    undo = ExitStack()
    undo.callback(params.update, before)
    return undo


def save(figure: Figure, path: str | Path) -> list[Path]:
    """Write a figure as `path`.png and `path`.svg, with its label as the description in both.

    The same figure gives the same bytes: there is no date and no random id, and the layout is rounded.
    """
    if figure.get_layout_engine() is not None:
        # The layout solver adds in an order that depends on memory addresses, so its last digits differ from run to
        # run: it runs once, and what it finds is rounded to a ten-thousandth of the size, less than a tenth of a pixel.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
        for part in figure.subfigs:
            low, high = part.bbox_relative.get_points()
            part.bbox_relative.set_points(np.round([low, high], 4))
        for ax in figure.axes:
            left, bottom, width, height = (round(value, 4) for value in ax.get_position().bounds)
            ax.set_position((left, bottom, width, height))
    return write(path, {kind: render(figure, kind) for kind in ("png", "svg")})


def write(path: str | Path, contents: Mapping[str, bytes]) -> list[Path]:
    """Write files that differ only in their suffix, the key of `contents`."""
    written = [Path(path).with_name(f"{Path(path).name}.{kind}") for kind in contents]
    for target, content in zip(written, contents.values(), strict=True):
        target.parent.mkdir(parents=True, exist_ok=True)
        files.replace(target, content, files.PUBLIC)
    return written


def render(figure: Figure, kind: str) -> bytes:
    """The bytes of a figure as PNG or SVG."""
    description = {"Description": str(figure.get_label())}
    buffer = BytesIO()
    with style():
        figure.savefig(buffer, format=kind, metadata=description | ({"Date": None} if kind == "svg" else {}))
    return buffer.getvalue()
