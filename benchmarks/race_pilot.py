"""The race's pilot: where each method's learning rates lie and what a run costs, before the protocol is fixed.

`python benchmarks/race_pilot.py TASK...` runs every method of `pmdkit_lab/studies/race.toml` on the tasks, at the
middle of its knob and learning rates over four decades, on a seed that the race does not use. `results/race-
pilot/TASK.json` is written after each run; the same command continues where it stopped. Nothing here is a comparison:
one seed, one knob.

Kept because docs/use/race.md takes its learning rates from it.
"""

import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from pmdkit.observe import files
from pmdkit_lab.studies import race

SEED = 900
RATES = {"bandit": (1e-4, 1.0), "copy": (1e-5, 1e-1), "sort": (1e-5, 1e-1), "starter": (3e-5, 1e-2)}
POINTS = {"bandit": 9, "copy": 7, "sort": 7, "starter": 6}
PLACE = Path(__file__).parent / "results" / "race-pilot"


def pilot(task: race.RaceTask, method: race.Method, found: dict[str, dict[str, float]], folder: str) -> None:
    """Do the missing runs of a method on a task."""
    wide = replace(task, lr=RATES[task.name], points=POINTS[task.name], knobs=1, updates=task.updates[-1:])
    for setting in wide.settings(method):
        key = json.dumps([method.name, setting])
        if key in found:
            continue
        began = time.process_time()
        ended = race.run_job(wide, method.name, setting, SEED, Path(folder) / "runs" / str(len(found)), 0.0)
        seconds = time.process_time() - began
        found[key] = {name: round(ended[name], 4) for name in ("auc", "final")} | {"cpu_seconds": round(seconds, 1)}
        files.replace(PLACE / f"{task.name}.json", (json.dumps(found, indent=0) + "\n").encode())
        print(task.name, key, found[key], flush=True)


def show(task: str, found: dict[str, dict[str, float]]) -> None:
    """Print each method's areas by learning rate; the best is marked, and flagged if it is at an edge."""
    rows: dict[str, list[tuple[float, float]]] = {}
    for key, ended in found.items():
        method, setting = json.loads(key)
        rows.setdefault(method, []).append((setting["schedule.lr"], ended["auc"]))
    for method, curve in rows.items():
        best = int(np.argmax([area for _, area in curve]))
        cells = " ".join(f"{lr:.0e}:{area:.2f}{'*' if n == best else ''}" for n, (lr, area) in enumerate(curve))
        print(f"{task:8} {method:12} {cells}{'  EDGE' if best in (0, len(curve) - 1) else ''}")


def main() -> None:
    """Run the tasks of the command line, and show the stored runs of every task."""
    protocol = race.read_protocol()
    PLACE.mkdir(exist_ok=True)
    for task in protocol.tasks:
        path = PLACE / f"{task.name}.json"
        found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        with tempfile.TemporaryDirectory() as folder:
            for method in protocol.methods if task.name in sys.argv[1:] else ():
                pilot(task, method, found, folder)
        show(task.name, found)


if __name__ == "__main__":
    main()
