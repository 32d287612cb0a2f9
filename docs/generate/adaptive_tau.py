"""Tables and picture of the study of adaptive temperatures, from its stored records, for docs/use/adaptive-tau.md."""

from pathlib import Path
from typing import Any

from generate import phone

from pmdkit.observe.run_folder import read_json
from pmdkit_lab.figures.drawing import Drawing
from pmdkit_lab.studies.adaptive import tables
from pmdkit_lab.studies.pictures import PICTURES, draw

FOLLOW_UPS = ("adaptive-tau-pmd-mean-122-pairs", "adaptive-tau-pmd-part-laws", "adaptive-tau-sort-pmd-part")
HEAD = "| arm | tuned to | mean pass rate | gain [95 %] | p | final | worst drop | dead |\n" + "|---" * 8 + "|\n"


def write_adaptive_tau(page: Path, results: Path) -> int:
    """Write what the page includes, `.adaptive-tau.md` beside it, and the picture; returns the number of cells.

    Args:
        page: docs/use/adaptive-tau.md.
        results: folder of the records.
    """
    text = save_svg(draw("adaptive-tau", results), page)
    cells = 0
    for name in (*PICTURES["adaptive-tau"][1:], *FOLLOW_UPS):
        record = read_json(results / f"{name}.json")
        for cell, rows in tables(record["runs"]).items():
            setting = record["cells"][cell]
            again = ", the second study" * (name in FOLLOW_UPS)
            text += f"**{setting['tier']}: {cell}**, {rows[0]['seeds']} seeds{again}\n\n{HEAD}"
            text += "".join(line(row, record["best"][cell][row["arm"]]) for row in rows) + "\n"
            cells += 1
    page.with_name(f".{page.name}").write_text(text, encoding="utf-8")
    return cells


def save_svg(drawing: Drawing, page: Path) -> str:
    """Save a picture as SVG under the name of its page; returns the Markdown that shows it."""
    files = phone.both(drawing.figure, page.with_suffix(""))
    return phone.tag(drawing.alt, *(f"../{file}" for file in files)) + "\n\n"


def line(row: dict[str, Any], tau: Any) -> str:
    """The table row of one arm."""
    gain = row.get("auc_gain")
    cells = [
        row["arm"] if row["twin"] is None else f"{row['arm']} (run by run {row['twin']})",
        value(tau),
        f"{row['auc']['mean']:.3f}",
        f"{gain['mean']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]" if gain else "",
        f"{row['p']:.2g}" if row["p"] is not None else "",
        f"{row['final']['mean']:.3f}",
        f"{row['drop']['mean']:.4f}",
        f"{row['dead']['mean']:.3f}",
    ]
    return "| " + " | ".join(cells) + " |\n"


def value(tau: Any) -> str:
    """The value an arm was tuned to."""
    if not isinstance(tau, dict):
        return f"tau {tau:g}"
    varied = next(key for key in ("scale", "eta", "budget") if key in tau)
    return f"{varied} {tau[varied]:g}"
