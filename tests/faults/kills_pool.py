"""Starts worker processes beside each other and collects what they report; says how a failure is run again."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .kills import PHASES
from .kills_harness import phases_of

TESTS = Path(__file__).parents[1]
WORKERS = min(2, len(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else 1


def run_all(folder: Path, arguments: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
    """The reports of one worker for each list of arguments, all at the same time."""
    processes = []
    for number, given in enumerate(arguments):
        command = [sys.executable, "-m", "faults.kills_worker", str(folder / str(number)), *given]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        with open(folder / f"{number}.err", "w") as said, open(folder / f"{number}.out", "w") as reports:
            processes.append(subprocess.Popen(command, cwd=TESTS, env=environment, stdout=reports, stderr=said))
    codes = [process.wait() for process in processes]
    for number, code in enumerate(codes):
        assert code == 0, f"worker {number} ended with {code}: {(folder / f'{number}.err').read_text()[-3000:]}"
    return [json.loads(line) for n in range(len(codes)) for line in (folder / f"{n}.out").read_text().splitlines()]


def table(reports: Sequence[dict[str, Any]]) -> Counter[str]:
    """How many kills fell in all, in each of PHASES, and by which signals."""
    fell = Counter(dict.fromkeys(("all", *PHASES), 0))
    for report in reports:
        for kill in report["kills"]:
            fell.update(["all", *phases_of(kill), " then ".join(kill[1])])
    return fell


def told(report: dict[str, Any], bug: str = "") -> str:
    """A broken invariant, what was done before it, and how to do that again."""
    again = f"bug '{bug}={report['plan']}'" if bug else f"plan {report['plan']}"
    name, detail = report["broken"]
    steps = "\n  ".join(report["told"])
    return (
        f"{report['case']}: {name}: {detail}\n  {steps}\n"
        f"again: cd tests && {Path(sys.executable).name} -m faults.kills_worker NEW_FOLDER {again}"
    )
