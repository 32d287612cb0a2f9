"""The study of adaptive temperatures: what every rule gains over the tuned fixed tau, in every cell of it."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pmdkit.figures.drawing import Drawing
from pmdkit.figures.style import BLACK, GREEN, GREY, VERMILLION, style
from pmdkit.sweeps.adaptive.protocol import FIXED
from pmdkit.sweeps.adaptive.table import Row, gains, loses, recommended

LINE = 0.27  # inches of a row


def draw(*records: dict[str, Any]) -> Drawing:
    """Gain in the area under the curve, mean and 95 % interval over paired seeds.

    Source: arXiv:2602.05933 leaves adaptive temperatures to future work.
    Differs: nothing of this is in the paper.
    """
    found: dict[str, list[Row]] = {cell: rows for record in records for cell, rows in record["tables"].items()}
    names = {cell: f"{setting['tier']}: {cell}" for record in records for cell, setting in record["cells"].items()}
    with style():
        figure = Figure(figsize=(7.2, 1.2 + LINE * sum(len(rows) + 1.4 for rows in found.values())))
        grid = figure.subplots(len(found), 1, sharex=True, height_ratios=[len(rows) + 0.4 for rows in found.values()])
        for ax, (cell, rows) in zip(np.atleast_1d(grid), found.items(), strict=True):
            panel(ax, rows, names[cell])
        np.atleast_1d(grid)[-1].set_xlabel("gain in mean pass rate over training against the tuned fixed tau")
    sentence = told(found, {c: s["objective"] for record in records for c, s in record["cells"].items()})
    return Drawing(figure, f"Intervals per rule and cell. {sentence}", sentence, numbers(found))


def panel(ax: Axes, rows: list[Row], title: str) -> None:
    """One cell."""
    ax.axvline(0.0, color="0.6", linewidth=0.8, zorder=1)
    others = [row for row in rows if row["arm"] != FIXED]
    for place, row in enumerate(others):
        gain = row["auc_gain"]
        colour = GREEN if gains(row) else VERMILLION if loses(row) else GREY
        ax.plot((gain["low"], gain["high"]), (place, place), "-", color=colour, linewidth=2)
        ax.plot(gain["mean"], place, "o", color=colour, markersize=5)
    fixed = rows[0]["auc"]["mean"]
    ax.set_yticks(range(len(others)), [row["arm"] for row in others])
    ax.set_ylim(len(others) - 0.4, -0.6)
    ax.set_title(f"{title} (fixed: {fixed:.3f}, {rows[0]['seeds']} seeds)", loc="left", color=BLACK)


def told(found: dict[str, list[Row]], objectives: dict[str, str]) -> str:
    """What came out, in words."""
    parts = []
    for cell, rows in found.items():
        better = [row["arm"] for row in rows if gains(row)]
        worse = [row["arm"] for row in rows if loses(row)]
        parts.append(f"{cell}: better {', '.join(better) or 'none'}; worse {', '.join(worse) or 'none'}.")
    passed = recommended(found, objectives) if "pmd-mean" in found else []
    return " ".join([*parts, f"Recommended by the stated rule: {', '.join(passed) or 'none'}."])


def numbers(found: dict[str, list[Row]]) -> dict[str, Any]:
    """Mean gains, by cell and arm."""
    return {
        f"{cell} {row['arm']}": np.array([row["auc_gain"][key] for key in ("mean", "low", "high")])
        for cell, rows in found.items()
        for row in rows
        if row["arm"] != FIXED
    }
