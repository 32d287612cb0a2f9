"""Charts and tables of the race, from its stored record, for docs/use/race.md."""

from pathlib import Path
from typing import Any

from generate.adaptive_tau import save_svg

from pmdkit.observe.run_folder import read_json
from pmdkit_lab.studies.pictures import draw

HEAD = "| method | mean | last | drop | gain [95 %] | with tuning | outcome | works in |\n" + "|---" * 8 + "|\n"
MATCHED = "| task | tau | pairs | PMD-mean ahead | gap [spread over settings] |\n" + "|---" * 5 + "|\n"


def write_race(page: Path, results: Path) -> int:
    """Write what the page includes, the sections of `.race.md` beside it, and the charts; returns the number of rows.

    Args:
        page: docs/use/race.md.
        results: folder of the records, with race/race.json.
    """
    record = read_json(results / "race" / "race.json")
    sections = {
        "matched": save_svg(draw("race-matched", results), page.with_stem("race-matched")),
        "pairs": MATCHED + "".join(matched_line(row) for row in record["matched"]),
        "gains": save_svg(draw("race", results), page),
        "tables": "",
        "changes": "".join(f"* {row['date']}: {row['what']}. Reason: {row['why']}.\n" for row in record["changes"]),
    }
    for task, rows in record["tables"].items():
        reference, *others = rows
        ordered = [reference, *sorted(others, key=lambda row: -float(row["gain"]["mean"]))]
        sections["tables"] += f"**{task}**, {reference['seeds']} seeds\n\n{HEAD}{''.join(map(line, ordered))}\n"
    marks = "<!-- --8<-- [{}:{}] -->\n"
    text = "".join(f"{marks.format('start', name)}{part}{marks.format('end', name)}" for name, part in sections.items())
    page.with_name(f".{page.name}").write_text(text, encoding="utf-8")
    return sum(map(len, record["tables"].values()))


def ends(interval: dict[str, float] | None) -> str:
    """A mean with its interval."""
    return f"{interval['mean']:+.3f} [{interval['low']:+.3f}, {interval['high']:+.3f}]" if interval else ""


def matched_line(row: dict[str, Any]) -> str:
    """The table row of a task and a tau."""
    tau = "all" if row["tau"] is None else f"{row['tau']:g}"
    return f"| {row['task']} | {tau} | {row['pairs']} | {row['wins']:.0%} | {ends(row['gap'])} |\n"


def line(row: dict[str, Any]) -> str:
    """The table row of one method."""
    needed = row.get("seeds_needed")
    cells = [
        row["method"] + (" (edge)" if row["edge"] else ""),
        *(f"{row[key]['mean']:.3f}" for key in ("auc", "final", "drop")),
        ends(row.get("gain")),
        ends(row.get("gain_with_tuning")),
        row.get("outcome", "reference") + (f" ({needed} seeds)" if needed else ""),
        f"{row['volume']:.0%}",
    ]
    return "| " + " | ".join(cells) + " |\n"
