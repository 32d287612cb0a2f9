"""Threads of a toy run: the same run with 1 and with 2, alternating, and two runs of one thread side by side.

Why the default is 1. Each run is a process of its own, as a person starts it; seconds are those of its steps.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CASES = (("modular-sum", 60), ("reverse", 15))
REPEATS = 3


def begin(env: str, steps: int, threads: int, out: Path) -> "subprocess.Popen[bytes]":
    """A run in a process of its own."""
    command = [sys.executable, "-m", "pmdkit", "toy", env, "--steps", str(steps), "--seed", "1", "--json"]
    command += ["--set", f"run.threads={threads}", "warm_start.pass_rate=0", "--out", str(out)]
    numbers = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}
    return subprocess.Popen(command, env={**os.environ, **numbers}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def seconds(process: "subprocess.Popen[bytes]") -> float:
    """Of its steps, rollouts and updates."""
    output, _ = process.communicate()
    if process.returncode:
        sys.exit(f"a run failed with code {process.returncode}")
    return float(json.loads(output)["seconds"])


def main() -> None:
    """One row per task: least seconds of alternating repeats."""
    rows = []
    for env, steps in CASES:
        best = {"one": float("inf"), "two": float("inf"), "pair": float("inf")}
        with tempfile.TemporaryDirectory() as folder:
            for repeat in range(REPEATS):
                place = Path(folder) / str(repeat)
                best["one"] = min(best["one"], seconds(begin(env, steps, 1, place / "one")))
                best["two"] = min(best["two"], seconds(begin(env, steps, 2, place / "two")))
                pair = [begin(env, steps, 1, place / f"pair-{i}") for i in range(2)]
                best["pair"] = min(best["pair"], max(seconds(process) for process in pair))
        rows.append({"task": env, "steps": steps, **best, "load": os.getloadavg()[0], "cores": os.cpu_count()})
        print(
            f"{env:12s} {steps} steps: 1 thread {best['one']:.2f} s, 2 threads {best['two']:.2f} s "
            f"({best['two'] / best['one']:.2f}x); two runs of 1 thread at once {best['pair']:.2f} s each; "
            f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores",
            flush=True,
        )
    print(json.dumps(rows), time.strftime("%Y-%m-%d"))


if __name__ == "__main__":
    main()
