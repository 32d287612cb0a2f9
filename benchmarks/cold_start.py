"""Cold start: a fresh interpreter imports pmdkit and solves one 1,000 x 1,000 problem; NumPy and torch beside it."""

import json
import statistics
import subprocess
import sys

SOLVE = """
import numpy as n, pmdkit
from pmdkit import theory
r = n.random.default_rng(0)
p = r.gamma(0.5, size=(1000, 1000)); p /= p.sum(1, keepdims=True); x = r.random((1000, 1000))
theory.pmd_mean(p, x, 0.05)
"""
CASES = {
    "python alone": "",
    "import numpy": "import numpy",
    "import pmdkit": "import pmdkit",
    "import pmdkit and one solve": SOLVE,
    "the arrays of that solve, unsolved": SOLVE.replace("theory.pmd_mean(p, x, 0.05)", ""),
    "pmdkit --help": "import sys\nsys.argv = ['pmdkit', '--help']\nimport pmdkit.cli\npmdkit.cli.main()",
    "import torch": "import torch",
}
PROBE = """
import resource, sys, time
began = time.perf_counter()
try:
    exec({code!r})
except SystemExit:
    pass
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(time.perf_counter() - began, peak, 'torch' in sys.modules, file=sys.stderr)
"""
RUNS = 5


def main() -> None:
    """Median seconds and peak memory of a few fresh interpreters each."""
    rows = []
    for name, code in CASES.items():
        readings = []
        for _ in range(RUNS):
            done = subprocess.run(
                [sys.executable, "-c", PROBE.format(code=code)], capture_output=True, text=True, check=True
            )
            seconds, peak, torch = done.stderr.split()[-3:]
            readings.append((float(seconds), float(peak)))
        row = {
            "case": name,
            "seconds": statistics.median(r[0] for r in readings),
            "peak_mib": statistics.median(r[1] for r in readings),
            "torch": torch == "True",
        }
        rows.append(row)
        print(f"{name:36s} {row['seconds']:6.3f} s   {row['peak_mib']:6.0f} MiB   torch: {row['torch']}", flush=True)
    print(json.dumps(rows))


if __name__ == "__main__":
    main()
