"""Cold start: a fresh interpreter solves one 1,000 x 1,000 problem, prints `--help`, or runs a short command.

The imports of TRL and torch are timed for comparison. The short commands are one of each tier, as whole processes, in
multiples of the CPU seconds of `import torch`.

Kept because rows cold_start/ bound what a first command costs.
"""

import importlib.util
import subprocess
import sys
import tempfile
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
FIRST_LINES = {
    "bandit": ["bandit", "needle", "--steps", "1"],
    "toy": ["toy", "modular-sum", "--steps", "1"],
    "dry-run": ["llm", "starter", "--dry-run"],
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
REPEATS = 2  # processes per round; the first start after an installation compiles and is not counted


def fresh(case: str) -> tuple[float, float, float, float]:
    """Wall and CPU seconds, peak MiB, and whether torch was imported."""
    command = [sys.executable, "-c", PROBE.format(code=CASES[case])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return tuple(float(word) for word in done.stderr.split()[-4:])


def command(arguments: list[str]) -> float:
    """CPU seconds of `pmdkit` with these arguments, in its own process and folder."""
    with tempfile.TemporaryDirectory() as folder:
        out = [] if "--dry-run" in arguments else ["--out", f"{folder}/run"]
        code = f"import sys\nsys.argv = {['pmdkit', *arguments, *out]!r}\nimport pmdkit.cli\npmdkit.cli.main()"
        done = subprocess.run(
            [sys.executable, "-c", PROBE.format(code=code)], capture_output=True, text=True, check=True
        )
    return float(done.stderr.split()[-3])


def first_lines(rounds: int) -> Iterator[Measured]:
    """Rows of the short commands, in turns with `import torch`, which each of them includes."""
    found: dict[str, list[float]] = {name: [] for name in ("torch", *FIRST_LINES)}
    for turn in range(rounds + 1):
        for name, seconds in found.items():
            spent = command(FIRST_LINES[name]) if name in FIRST_LINES else fresh("torch")[1]
            if turn:  # the first start after an installation compiles
                seconds.append(spent)
    for name in FIRST_LINES:
        over = [spent / torch for spent, torch in zip(found[name], found["torch"], strict=True)]
        note = f"{min(found[name]):.1f} CPU s, import torch {min(found['torch']):.1f}"
        yield Measured(f"cold_start/{name}", over, {"CPU seconds": found[name]}, note=note)


def measure(rounds: int) -> Iterator[Measured]:
    """All rows, in CPU seconds: how long a fresh process waits for the disk depends on the machine."""
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
    yield from first_lines(rounds)
