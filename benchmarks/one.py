"""Run one benchmark in this process: `python benchmarks/one.py NAME --rounds 3 --out FILE`.

run.py starts it, and sets the number of threads, which libraries read when they are imported. The file is written after
every row, so that nothing is lost when a later row fails.

Kept because run.py starts each benchmark through it.
"""

import argparse
import json
import os
import warnings
from importlib import import_module
from pathlib import Path

from harness.machine import machine, versions


def main() -> None:
    """Import the module and write its rows as they are measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    rows: dict[str, dict[str, object]] = {}
    for row in import_module(chosen.name).measure(chosen.rounds):
        rows[row.key] = row.to_json()
        told = {"environment": machine() | {"versions": versions()}, "rows": rows}
        aside = chosen.out.with_suffix(".part")  # run.py reads the file meanwhile
        aside.write_text(json.dumps(told), encoding="utf-8")
        os.replace(aside, chosen.out)


if __name__ == "__main__":
    main()
