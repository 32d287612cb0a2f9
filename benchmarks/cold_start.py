"""Cold start: a fresh interpreter imports pmdkit and solves one 1,000 x 1,000 problem; `--help`; TRL, torch beside."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator

from harness.rows import Measured

ARRAYS = """
import numpy as n
r = n.random.default_rng(0)
p = r.gamma(0.5, size=(1000, 1000)); p /= p.sum(1, keepdims=True); x = r.random((1000, 1000))
"""
CASES = {
    "solve": ARRAYS + "import pmdkit\nfrom pmdkit import theory\ntheory.pmd_mean(p, x, 0.05)",
    "limit": ARRAYS,
    "help": "import sys\nsys.argv = ['pmdkit', '--help']\nimport pmdkit.cli\npmdkit.cli.main()",
    "torch": "import torch",
    "trl": "from trl import GRPOTrainer",
}
PROBE = """
import resource, sys, time
began, core = time.perf_counter(), time.process_time()
try:
    exec({code!r})
except SystemExit:
    pass
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
spent = time.perf_counter() - began, time.process_time() - core
print(*spent, peak, int('torch' in sys.modules), file=sys.stderr)
"""
REPEATS = 2  # processes a round; the first start after an installation compiles, and is one too many


def fresh(case: str) -> tuple[float, float, float, float]:
    """Seconds on the clock and of a core, peak MiB, whether torch came in."""
    command = [sys.executable, "-c", PROBE.format(code=CASES[case])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return tuple(float(word) for word in done.stderr.split()[-4:])


def measure(rounds: int) -> Iterator[Measured]:
    """Seconds by the core: what a fresh process waits for its disk is the machine's."""
    cases = [case for case in CASES if case != "trl" or importlib.util.find_spec("trl")]
    for case in cases:
        fresh(case)
    found: dict[str, list[tuple[float, ...]]] = {case: [] for case in cases}
    for _ in range(rounds * REPEATS):
        for case in cases:
            found[case].append(fresh(case))
    least = min(core for _, core, *_ in found["limit"])
    raw = {"[wall, CPU] seconds, MiB, torch": found}
    seconds = [core for _, core, *_ in found["solve"]]
    beside = ", ".join(f"import {case} {min(core for _, core, *_ in found[case]):.1f} s" for case in cases[3:])
    limit = {"limit": f"{least:.2f} s: NumPy and the arrays", "times": [value / least for value in seconds]}
    yield Measured("cold_start/solve", seconds, raw, **limit, note=beside)
    peaks = [peak for _, _, peak, _ in found["solve"]]
    least = min(peak for _, _, peak, _ in found["limit"])
    yield Measured("cold_start/memory", peaks, limit=f"{least:.0f} MiB", times=[peak / least for peak in peaks])
    yield Measured("cold_start/torch", [max(torch for *_, torch in found["solve"] + found["help"])])
    yield Measured("cold_start/help", [core for _, core, *_ in found["help"]])
