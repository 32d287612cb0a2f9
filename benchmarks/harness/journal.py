"""The journal of a study: every finished run as a line, so that the same command goes on where it stopped."""

import json
import sys
from pathlib import Path


def read(path: Path, protocol: str, keys: tuple[str, ...]) -> dict:
    """Every finished run so far, by the values of its keys; a run of another protocol ends the program."""
    found = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        row = json.loads(line)
        if row["protocol"] != protocol:
            raise SystemExit(f"{path} has a run of protocol {row['protocol']}; expected {protocol}: move it away")
        found[tuple(row[key] for key in keys)] = row
    return found


def append(path: Path, row: dict) -> None:
    """Add a finished run."""
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(row, file=sys.stderr, flush=True)


def word(low: float, high: float, margin: float, above: str = "up", below: str = "down") -> str:
    """The word of a comparison for an interval."""
    if low > margin or high < -margin:
        return above if low > margin else below
    return "alike" if low > -margin and high < margin else "undecided"
