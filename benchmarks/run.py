"""Runs the benchmarks of this folder that need no further package, one after the other, on one thread.

Numbers go to README.md by hand.
"""

import os
import subprocess
import sys
from pathlib import Path

# toy_training.py and llm_step.py need trl besides, and run alone
SCRIPTS = (
    "solver.py",
    "cold_start.py",
    "vector_env.py",
    "toy_sampling.py",
    "toy_threads.py",
    "llm_sampling.py",
    "llm_packing.py",
    "verifier.py",
)


def main() -> None:
    """Fails when one of them fails."""
    here = Path(__file__).parent
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    for script in SCRIPTS:
        print(f"== {script}", flush=True)
        subprocess.run([sys.executable, str(here / script)], check=True, env=environment)


if __name__ == "__main__":
    main()
