"""The record of a sitting, a file in results/bench/ with every raw reading; the table is computed from it alone.

`results` has an entry per benchmark: when it ran, in how many rounds, on which machine, its rows, and why it failed.
"""

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.rows import Claim, benchmark_of, claims

FORMAT = 1
ABOUT = "A sitting of `make bench`. Readings of time are [wall, CPU] seconds, one a round; values in the claim's unit."
Record = dict[str, Any]


def empty() -> Record:
    """A sitting in which nothing has run."""
    return {"format": FORMAT, "about": ABOUT, "claims": [asdict(claim) for claim in claims()], "results": {}}


def read(path: Path) -> Record:
    """The record of a file, with the claims as they are now; an empty one where there is no file."""
    if not path.exists():
        return empty()
    record: Record = json.loads(path.read_text(encoding="utf-8"))
    if record.get("format") != FORMAT:
        raise SystemExit(f"{path} has format {record.get('format')}; expected {FORMAT}: begin anew with --fresh")
    return empty() | {"results": record["results"]}


def write(path: Path, record: Record) -> None:
    """Write the record atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.part")
    aside.write_text(json.dumps(short(record), separators=(",", ":")) + "\n", encoding="utf-8")
    os.replace(aside, path)


def short(value: Any) -> Any:
    """A value with its floats rounded to seven digits, more than a clock has."""
    if isinstance(value, dict):
        return {key: short(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [short(one) for one in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def missing(record: Record, names: list[str]) -> list[str]:
    """Benchmarks that have not run in this sitting, or not all of whose rows have values."""
    return [name for name in names if name not in record["results"] or failures(record, name)]


def failures(record: Record, name: str) -> dict[str, str]:
    """Why rows of a benchmark that ran have no values, by key."""
    entry = record["results"][name]
    rows = entry["rows"]
    found = {}
    for claim in record["claims"]:
        key = claim["key"]
        if benchmark_of(key) == name and not rows.get(key, {}).get("values"):
            found[key] = rows.get(key, {}).get("failed") or entry["failed"] or "the benchmark gave no such row"
    return found


def claims_of(record: Record) -> list[Claim]:
    """The claims that the record was measured for."""
    return [Claim(**claim) for claim in record["claims"]]
