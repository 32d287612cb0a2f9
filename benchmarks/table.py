"""The tables of README.md, from the records of sittings: `python benchmarks/table.py`. Measures nothing.

A processor has one record and one column. Rows that need an accelerator have a table of their own.

Kept because README.md's tables are what it makes of the stored sittings.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from harness.machine import file_name
from harness.record import Record, failures, read
from harness.rows import CLAIMS, Claim, benchmark_of, claims, spread

HERE = Path(__file__).parent
RESULTS, README = HERE / "results", HERE / "README.md"
SITTINGS = RESULTS / "bench"  # a file for each processor
GPU_RECORD = RESULTS / "gpu.json"  # written by gpu.py, whose machine is seldom one of the others
BEGIN, END = "<!-- table: written by table.py -->", "<!-- end of table -->"


def record_path(processor: str) -> Path:
    """Where the sitting of a processor is kept."""
    return SITTINGS / f"{file_name(processor)}.json"


def sittings() -> list[Record]:
    """The records of all processors, sorted by file name."""
    return [read(path) for path in sorted(SITTINGS.glob("*.json"))]


def accelerators() -> list[Record]:
    """What gpu.py has measured."""
    return [read(GPU_RECORD)] if GPU_RECORD.exists() else []


def page_text(on_processors: list[Record], on_accelerators: list[Record]) -> str:
    """Markdown: how to read a cell, the table of processors, then that of accelerators."""
    here = [claim for claim in claims() if benchmark_of(claim.key) not in scriptless()]
    there = [claim for claim in claims() if benchmark_of(claim.key) in scriptless()]
    intro = (
        "Ratios are of CPU seconds on one thread, unless a row says by the clock. A cell has the median and the range "
        "of the rounds, whether the median reaches the goal and, for rows with a physical limit, how far it is away."
    )
    parts = [intro, table(here, on_processors), "### On an accelerator", table(there, on_accelerators)]
    return "\n\n".join(parts)


def table(listed: list[Claim], records: list[Record]) -> str:
    """How many goals each processor reaches, one row per claim and one column per processor, and the machines."""
    nobody = "No machine has run these rows yet; `benchmarks/gpu.py` measures them."
    counts = [count(record, listed) for record in records] or [nobody]
    titles = ["what", "workload", "peer", "goal", *map(processor_of, records), "limit"]
    lines = [f"| {' | '.join(titles)} |", "|" + "---|" * len(titles)]
    for claim in listed:
        found = [cell(claim, record) for record in records]
        cells = [claim.what, claim.workload, claim.peer or "-", goal(claim), *found, claim.limit or "-"]
        lines.append(f"| {' | '.join(cells)} |")
    machines = [f"- {words}" for record in records for words in machine_lines(record)]
    return "\n".join([*counts, "", *lines, *(["", *machines] if machines else [])])


def count(record: Record, listed: list[Claim]) -> str:
    """How many goals a processor reaches."""
    marks = [mark for claim in listed if (mark := judged(claim, record)) is not None]
    silent = sum(not values_of(claim, record) for claim in listed)
    told = f"; {silent} rows did not run" if silent else ""
    return f"- {processor_of(record)}: {sum(marks)} of {len(marks)} goals are met{told}."


def values_of(claim: Claim, record: Record) -> list[float]:
    """[rounds] in the claim's unit; empty where the row did not run."""
    entry = record["results"].get(benchmark_of(claim.key), {"rows": {}})
    return list(entry["rows"].get(claim.key, {}).get("values", []))


def judged(claim: Claim, record: Record) -> bool | None:
    """Whether the median reaches the goal; None without a goal or a median."""
    values = values_of(claim, record)
    return claim.met(spread(values)[0]) if claim.goal and values else None


def cell(claim: Claim, record: Record) -> str:
    """The cell of a claim in the column of a processor."""
    entry = record["results"].get(benchmark_of(claim.key))
    if entry is None:
        return "not in this sitting"
    if not (values := values_of(claim, record)):
        return f"not run: {failures(record, benchmark_of(claim.key))[claim.key]}"
    found = entry["rows"][claim.key]
    verdict = {"-": "", "no": ", **no**"}.get(mark := met(values, claim), f", {mark}")
    words = [result(values, claim) + verdict, found.get("note", "")]
    if found.get("times"):
        measured = f" ({found['limit']})" if found.get("limit") else ""
        words.append(f"{number(spread(found['times'])[0])} times its limit{measured}")
    if entry["load"][0] > 1.5:
        words.append(f"load {entry['load'][0]:.1f}")
    return "; ".join(filter(None, words))


def goal(claim: Claim) -> str:
    """The goal with its unit."""
    return claim.goal + unit(claim) if claim.goal else "-"


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
    return "yes" if all(map(claim.met, values)) else "yes, but not in every round"


def processor_of(record: Record) -> str:
    """The processor of a sitting's machine, without the number of cores."""
    named = [entry["environment"]["processor"] for entry in record["results"].values() if entry["environment"]]
    return re.sub(r"\b\d+ cores of ", "", named[0]) if named else "nothing has run"


def machine_lines(record: Record) -> list[str]:
    """The machine of a sitting, its days, and the versions of each environment, in words."""
    days: dict[str, list[str]] = {}
    for entry in record["results"].values():
        if entry["environment"]:
            days.setdefault(describe(entry["environment"]), []).append(entry["date"])
    return [
        f"{words}; {min(dates)}" + (f" to {max(dates)}" if max(dates) > min(dates) else "")
        for words, dates in days.items()
    ]


def describe(environment: dict[str, Any]) -> str:
    """A machine and its versions."""
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    return f"{environment['processor']}, {environment['memory']}, {environment['system']}; {versions}"


def unit(claim: Claim) -> str:
    """The unit as it is written after a number."""
    return claim.unit if claim.unit in ("x", "%", "") else f" {claim.unit}"


def number(value: float) -> str:
    """A number with three significant digits."""
    if abs(value) >= 1e3:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.3g}"


def scriptless() -> set[str]:
    """Benchmarks that `make bench` has no script for: they need an accelerator."""
    known = tomllib.loads(CLAIMS.read_text(encoding="utf-8"))["benchmark"]
    return {name for name, about in known.items() if about["environment"] == "none"}


def inserted(page: str, text: str) -> str:
    """The page with the tables between its marks."""
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(BEGIN) > page.index(END):
        raise SystemExit(f"the page needs one line '{BEGIN}' and after it one '{END}'; put them where the table goes")
    before, after = page.split(BEGIN)[0], page.split(END)[1]
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"


def write_readme() -> None:
    """Write the tables of all records into README.md."""
    page = README.read_text(encoding="utf-8")
    README.write_text(inserted(page, page_text(sittings(), accelerators())), encoding="utf-8")


if __name__ == "__main__":
    write_readme()
