"""The table of README.md, from the record of a sitting: `python benchmarks/table.py [RECORD]`. Measures nothing."""

import sys
from pathlib import Path
from typing import Any

from harness.record import Record, claims_of, failures, read
from harness.rows import Claim, benchmark_of, spread

HERE = Path(__file__).parent
RECORD, README = HERE / "results" / "bench.json", HERE / "README.md"
GPU_RECORD = HERE / "results" / "gpu.json"  # of gpu.py, whose machine is seldom that of the rest
BEGIN, END = "<!-- table: written by table.py -->", "<!-- end of table -->"
COLUMNS = (
    "what",
    "workload",
    "peer",
    "result: median [least, most]",
    "goal",
    "met",
    "limit, times it",
    "date, machine",
)


def table(record: Record) -> str:
    """Markdown: how many goals are met, one row per claim, the machines."""
    letters: dict[str, str] = {}
    lines = [row(claim, record, letters) for claim in claims_of(record)]
    marks = [line.split(" | ")[5] for line in lines]
    reached, missed = sum(mark.startswith("yes") for mark in marks), marks.count("no")
    told = (
        f"{reached} of {reached + missed} measured goals are met; {marks.count('not run')} rows did not run. "
        "Ratios are of CPU seconds on one thread, unless a row says by the clock."
    )
    head = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    return "\n".join([told, "", *head, *lines, "", *(f"- {letter}: {words}" for words, letter in letters.items())])


def row(claim: Claim, record: Record, letters: dict[str, str]) -> str:
    """One line. Machines get letters in the order in which they come."""
    entry = record["results"].get(benchmark_of(claim.key))
    found = entry["rows"].get(claim.key, {}) if entry else {}
    if found.get("values"):
        claim = claim.on(entry["environment"]["processor"])
    goal = claim.goal + unit(claim) if claim.goal else "-"
    if not found.get("values"):
        why = failures(record, benchmark_of(claim.key))[claim.key] if entry else "not in this sitting"
        cells = [why, goal, "not run", claim.limit or "-", entry["date"] if entry else "-"]
    else:
        letter = letters.setdefault(machine(entry["environment"]), chr(ord("A") + len(letters)))
        busy = f", load {entry['load'][0]:.1f}" if entry["load"][0] > 1.5 else ""
        told = result(found["values"], claim) + (f"; {found['note']}" if found.get("note") else "")
        cells = [told, goal, met(found["values"], claim), limit(found, claim), f"{entry['date']}, {letter}{busy}"]
    return "| " + " | ".join([claim.what, claim.workload, claim.peer or "-", *cells]) + " |"


def result(values: list[float], claim: Claim) -> str:
    """Median, and the range where there were rounds."""
    median, least, most = spread(values)
    if len(values) == 1:
        return number(median) + unit(claim)
    return f"{number(median)}{unit(claim)} [{number(least)}, {number(most)}]"


def met(values: list[float], claim: Claim) -> str:
    """Whether the median reaches the goal, and whether every round does."""
    if not claim.goal:
        return "-"
    if not claim.met(spread(values)[0]):
        return "no"
    return "yes" if all(map(claim.met, values)) else "yes, not in every round"


def limit(found: dict[str, Any], claim: Claim) -> str:
    """What bounds the row, as it was measured beside it."""
    if not found.get("times"):
        return claim.limit or "-"
    words = f"{claim.limit}, {found['limit']}" if found.get("limit") else claim.limit
    return f"{words}: {number(spread(found['times'])[0])}x"


def machine(environment: dict[str, Any]) -> str:
    """In words."""
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    return f"{environment['processor']}, {environment['memory']}, {environment['system']}; {versions}"


def unit(claim: Claim) -> str:
    """As it stands after a number."""
    return claim.unit if claim.unit in ("x", "%", "") else f" {claim.unit}"


def number(value: float) -> str:
    """Three digits."""
    if abs(value) >= 1e3:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def with_gpu(record: Record) -> Record:
    """The record with what gpu.py has measured, where it has."""
    return record | {"results": record["results"] | (read(GPU_RECORD)["results"] if GPU_RECORD.exists() else {})}


def inserted(page: str, text: str) -> str:
    """The page with the table between its marks."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise SystemExit(f"the page needs one line '{BEGIN}' and after it one '{END}'; put them where the table goes")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def main() -> None:
    """Into README.md."""
    record = with_gpu(read(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORD))
    README.write_text(inserted(README.read_text(encoding="utf-8"), table(record)), encoding="utf-8")


if __name__ == "__main__":
    main()
