"""How each method is drawn in every figure: its colour, dash and marker, and its name in a title."""

from typing import Any

import matplotlib
import numpy as np

from pmdkit.figures.style import BLACK, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY, VERMILLION

LOOKS: dict[str, tuple[str, Any, str]] = {  # colour, dash, marker: all distinct even without colour
    "pmd-mean": (BLUE, "-", "o"),
    "pmd-part": (VERMILLION, (0, (5, 1.6)), "s"),
    "rloo": (GREEN, (0, (1, 1.2)), "^"),
    "grpo": (ORANGE, (0, (6, 1.5, 1, 1.5)), "D"),
    "dr-grpo": (ORANGE, (0, (3, 1, 1, 1, 1, 1)), "d"),
    "dapo": (ORANGE, (0, (8, 3)), "p"),
    "gspo": (SKY, (0, (4, 1, 1, 1)), "v"),
    "cispo": (SKY, (0, (2, 1)), "<"),
    "chi2-po": (PURPLE, (0, (8, 1.5, 2, 1.5)), "P"),
    "rebel": (PURPLE, (0, (3, 2)), "X"),
    "tb": (BLACK, (0, (1, 2)), ">"),
    "dro": (BLACK, (0, (5, 3)), "h"),
    "pmd-token": (BLUE, (0, (7, 1)), "8"),
    "qrpo": (VERMILLION, (0, (2, 2.5)), "*"),
    "sppo": (VERMILLION, (0, (6, 1, 2, 1)), "H"),
    "opmd": (GREEN, (0, (4, 4)), "1"),
    "rec": (GREEN, (0, (5, 1, 1, 1)), "2"),
    "asymre": (GREEN, (0, (2, 1, 1, 1)), "3"),
    "topr": (GREEN, (0, (9, 2)), "4"),
    "grpo-kl": (ORANGE, (0, (1, 3)), "+"),
    "sapo": (SKY, (0, (6, 2, 2, 2)), "x"),
    "gmpo": (SKY, (0, (1, 0.8)), "|"),
    "reinforce-pp": (ORANGE, (0, (10, 1.5, 1, 1.5)), "."),
    "pmd-between": (BLUE, (0, (12, 2)), "_"),
    "pmd-score": (BLUE, (0, (2, 1.2)), "$S$"),
    "bapo": (ORANGE, (0, (5, 1, 1, 2)), "$B$"),
    "flowrl": (BLACK, (0, (7, 1.5, 1, 1.5)), "$F$"),
}
COLOURS = {method: colour for method, (colour, _, _) in LOOKS.items()}
TITLES = {"pmd-mean": "PMD-mean", "pmd-part": "PMD-part"}


def look(method: str, marker: bool = False) -> dict[str, Any]:
    """Keywords for `plot` that draw a method as in every other figure; a dotted grey line for an unknown method."""
    colour, dash, symbol = LOOKS.get(method, (GREY, (0, (1, 1.5)), "*"))
    return {"color": colour, "linestyle": dash} | ({"marker": symbol} if marker else {})


def shades(count: int) -> list[Any]:
    """Colours from dark to light for a swept quantity; their order survives greyscale.

    Lighter ones than the last have a contrast below 3 to 1 on white.
    """
    return list(matplotlib.colormaps["viridis"](np.linspace(0.0, 0.58, count)))
