"""Run every benchmark of the project in one sitting, and write its column of README.md: what `make bench` does.

Each processor has a column, and a record in results/bench/. An interrupted sitting continues where it stopped; once it
is complete, the next call starts a new one. Each benchmark runs in its own process, on one thread, in the environment
that has its peers. A benchmark that fails, or whose peer is not installed, becomes a row that says so, and the exit
code is 1. At the end each row that
moved by more than 15 % from the stored column is printed, and each that did not run.

Kept because `make bench` is this script.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Container, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from harness import record as records
from harness.machine import load, processor
from harness.rows import CLAIMS, benchmark_of, spread
from table import SITTINGS, count, met, record_path, result, values_of, write_readme

HERE = Path(__file__).parent
PLACES = {"bench": HERE.parent / ".venv-bench", "vllm": HERE.parent / ".venv-vllm"}
ENVIRONMENT = {
    **dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"),
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
MOVED = 0.15  # of the stored median; rounds of one sitting differ by up to a tenth
PATIENCE = 10  # time limit, in multiples of the minutes that a benchmark takes on an idle machine


def main() -> None:
    """Run the missing or requested benchmarks, one after another."""
    benchmarks = tomllib.loads(CLAIMS.read_text(encoding="utf-8"))["benchmark"]
    chosen = arguments(list(benchmarks))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # the finally blocks end what was started
    quick = Path(tempfile.gettempdir()) / "pmdkit-bench-quick.json"
    column = record_path(processor())
    stored = records.read(column)  # as it was before this sitting
    path = chosen.record or (quick if chosen.quick else column)
    record = records.empty() if chosen.fresh else records.read(path)
    wanted = chosen.only or records.missing(record, able(benchmarks))
    if not wanted:
        record, wanted = records.empty(), able(benchmarks)
    rounds = 1 if chosen.quick else chosen.rounds
    minutes = sum(benchmarks[name]["minutes"] for name in wanted)
    told = f"about {max(1, minutes * (rounds + 1) / 4):.0f} minutes on an idle machine"
    print(f"{len(wanted)} benchmarks, {rounds} rounds, {told}", flush=True)
    for place, name in enumerate(wanted, 1):
        about = benchmarks[name]
        print(f"[{place}/{len(wanted)}] {name}", flush=True)
        record["results"][name] = measured(name, about, rounds)
        records.write(path, record)
        tell(record, name)
    if path.parent == SITTINGS:
        write_readme()
    print(f"\nagainst the stored column {column.name}:")
    print("\n".join(compared(record, stored, wanted)))
    listed = [claim for claim in records.claims_of(record) if benchmark_of(claim.key) in record["results"]]
    print(f"\n{count(record, listed)}\n{path} has every reading")
    sys.exit(any(records.failures(record, name) for name in able(benchmarks) if name in record["results"]))


def arguments(names: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", action="append", choices=names, help="measure this one anew; may be repeated")
    parser.add_argument("--rounds", type=int, default=3, help="turns of all sides, of which the table has the median")
    parser.add_argument("--quick", action="store_true", help="one round, into a record aside; README.md stays")
    parser.add_argument("--fresh", action="store_true", help="forget what this sitting has measured")
    parser.add_argument(
        "--record", type=Path, help="another file than that of this processor in results/bench/; README.md stays"
    )
    return parser.parse_args()


def able(benchmarks: dict[str, Any]) -> list[str]:
    """Benchmarks that `make bench` has a script for."""
    return [name for name, about in benchmarks.items() if about["environment"] != "none"]


def entry(rounds: int) -> dict[str, Any]:
    """The empty entry of a benchmark that starts now."""
    today = datetime.now(UTC).strftime("%Y-%m-%d")
    return {"date": today, "rounds": rounds, "load": [load()], "failed": "", "environment": {}, "rows": {}}


def measured(name: str, about: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Run a benchmark; returns its entry of the record."""
    found, began = entry(rounds), time.monotonic()
    place = PLACES.get(about["environment"])
    python = sys.executable if place is None else str(place / "bin" / "python")
    if place is not None and not Path(python).exists():
        return found | {"failed": f"{place.name} is not there: make {place.name}/installed"}
    with tempfile.TemporaryDirectory() as folder:
        out, log = Path(folder) / "rows.json", Path(folder) / "log"
        command = [python, str(HERE / "one.py"), name, "--rounds", str(rounds), "--out", str(out)]
        failed = watched(command, out, log, about["minutes"] * 60 * PATIENCE, about.get("variables", {}))
        if failed:
            print("".join(log.read_text(errors="replace").splitlines(keepends=True)[-15:]), file=sys.stderr)
        told = json.loads(out.read_text(encoding="utf-8")) if out.exists() else {}
    seconds = round(time.monotonic() - began, 1)
    return {**found, **told, "failed": failed, "load": [*found["load"], load()], "seconds": seconds}


def watched(command: list[str], out: Path, log: Path, seconds: float, variables: Mapping[str, str]) -> str:
    """Run a command, then kill everything that it started; returns why it failed, or an empty string."""
    began = time.monotonic()
    with log.open("w") as sink:
        process = subprocess.Popen(
            command, stdout=sink, stderr=sink, env={**os.environ, **ENVIRONMENT, **variables}, start_new_session=True
        )
        try:
            while process.poll() is None:
                time.sleep(0.5)
                if sys.stdout.isatty():
                    rows = len(json.loads(out.read_text())["rows"]) if out.exists() else 0
                    print(f"    {time.monotonic() - began:4.0f} s, {rows} rows", end="\r", flush=True)
                if time.monotonic() - began > seconds:
                    return f"given up after {seconds / 60:.0f} minutes"
        finally:
            with suppress(ProcessLookupError):  # all processes have ended
                os.killpg(process.pid, signal.SIGKILL)  # engines outlive the processes that started them
            process.wait()
    if process.returncode == 0:
        return ""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    last = lines[-1].replace(str(HERE.parent), ".") if lines else "it said nothing"
    return f"ended with code {process.returncode}: {last}"[:200]


def compared(record: records.Record, stored: records.Record, measured: Container[str]) -> list[str]:
    """Compare this sitting with the stored column: rows that moved, rows that did not run, and how many held.

    A row has moved if its median is more than MOVED above or below the stored one. Better or worse is for the reader
    to say: some rows are good if large, others if small.
    """
    told, held = [], 0
    for claim in records.claims_of(record):
        name = benchmark_of(claim.key)
        now, before = (values_of(claim, one) if one["results"].get(name) else [] for one in (record, stored))
        if name not in measured or not now:
            told.append(f"    {claim.key}: not run")
        elif not before:
            told.append(f"    {claim.key}: {result(now, claim)}; nothing is stored to compare it with")
        elif moved(spread(now)[0], spread(before)[0]):
            told.append(f"    {claim.key}: {result(now, claim)}, stored {result(before, claim)}")
        else:
            held += 1
    return [*told, f"    {held} rows are within {MOVED:.0%} of what is stored"]


def moved(now: float, before: float) -> bool:
    """Whether a median differs from the stored one by more than MOVED of the stored one."""
    return abs(now - before) > MOVED * abs(before)


def tell(record: records.Record, name: str) -> None:
    """Print the rows of a benchmark."""
    found = record["results"][name]
    failures = records.failures(record, name)
    for claim in records.claims_of(record):
        if benchmark_of(claim.key) != name:
            continue
        if claim.key in failures:
            print(f"    {claim.key}: not run: {failures[claim.key]}", flush=True)
            continue
        values = found["rows"][claim.key]["values"]
        print(f"    {claim.key}: {result(values, claim)}; goal {claim.goal or '-'}: {met(values, claim)}", flush=True)


if __name__ == "__main__":
    main()
