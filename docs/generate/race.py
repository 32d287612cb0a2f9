"""Tables and picture of the race, from its stored record, for docs/use/race.md."""

from pathlib import Path
from typing import Any

from generate.adaptive_tau import save_svg

from pmdkit.observe.run_folder import read_json
from pmdkit_lab.studies.pictures import draw

HEAD = (
    "| method | mean | last | drop | gain [95 %] | outcome | near own best | near best of all |\n" + "|---" * 8 + "|\n"
)


def write_race(page: Path, results: Path) -> int:
    """Write what the page includes, `.race.md` beside it, and the picture; returns the number of rows.

    Args:
        page: docs/use/race.md.
        results: folder of the records, with race/race.json.
    """
    record = read_json(results / "race" / "race.json")
    text = save_svg(draw("race", results), page)
    for task, rows in record["tables"].items():
        text += f"**{task}**, {rows[0]['seeds']} seeds\n\n{HEAD}"
        reference, *others = rows
        ordered = [reference, *sorted(others, key=lambda row: -float(row["gain"]["mean"]))]
        text += "".join(line(row) for row in ordered) + "\n"
    if record["changes"]:
        text += "**Changes of the protocol**\n\n"
        text += "".join(f"* {each['date']}: {each['what']}. Reason: {each['why']}.\n" for each in record["changes"])
    page.with_name(f".{page.name}").write_text(text, encoding="utf-8")
    return sum(map(len, record["tables"].values()))


def line(row: dict[str, Any]) -> str:
    """The table row of one method."""
    gain, needed = row.get("gain"), row.get("seeds_needed")
    outcome = row.get("outcome", "reference") + (f" ({needed} seeds)" if needed else "")
    cells = [
        row["method"] + (" (edge)" if row["edge"] else ""),
        *(f"{row[key]['mean']:.3f}" for key in ("auc", "final", "drop")),
        f"{gain['mean']:+.3f} [{gain['low']:+.3f}, {gain['high']:+.3f}]" if gain else "",
        outcome,
        *(f"{row[key]:.0%}" for key in ("volume_own", "volume_all")),
    ]
    return "| " + " | ".join(cells) + " |\n"
