"""Threads of a toy run: the same run with 1 and 2 threads, and two one-thread runs at once, in wall-clock time.

This is why the default is 1. Each run is its own process, as a user would start it; seconds are those of its steps.
Other load on the machine affects these rows more than any other.

Kept because rows toy_threads/ are why one thread is the default.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from harness.rows import Measured

CASES = {"modular-sum": 60, "reverse": 15}  # task: steps


def begin(env: str, steps: int, threads: int, out: Path) -> "subprocess.Popen[bytes]":
    """Start a run in its own process."""
    command = [sys.executable, "-m", "pmdkit", "toy", env, "--steps", str(steps), "--seed", "1", "--json"]
    command += ["--set", f"run.threads={threads}", "warm_start.pass_rate=0", "--out", str(out)]
    numbers = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return subprocess.Popen(command, env={**os.environ, **numbers}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def seconds(process: "subprocess.Popen[bytes]") -> float:
    """Wait for a run to end; returns the seconds of its steps, rollouts and updates."""
    output, _ = process.communicate()
    if process.returncode:
        raise RuntimeError(f"a run ended with code {process.returncode}")
    return float(json.loads(output)["seconds"])


def measure(rounds: int) -> Iterator[Measured]:
    """One row per task."""
    for env, steps in CASES.items():
        found: dict[str, list[float]] = {"one": [], "two": [], "pair": []}
        with tempfile.TemporaryDirectory() as folder:
            for turn in range(rounds):
                place = Path(folder) / str(turn)
                found["one"].append(seconds(begin(env, steps, 1, place / "one")))
                found["two"].append(seconds(begin(env, steps, 2, place / "two")))
                pair = [begin(env, steps, 1, place / f"pair-{i}") for i in range(2)]
                found["pair"].append(max([seconds(process) for process in pair]))
        beside = min(found["pair"]) / min(found["one"])
        note = f"two runs of one thread side by side: {beside:.2f}x the time of one alone"
        over = [two / one for two, one in zip(found["two"], found["one"], strict=True)]
        yield Measured(f"toy_threads/{env}", over, {"seconds": found}, note=note)
