"""`python -m pmdkit_lab.ward NAME...` runs replicas and prints what the pages show; without a name, all of them."""

import sys
from importlib import import_module

REPLICAS = {
    "per-token": "per_token",
    "pattern": "pattern",
    "without-reason": "without_reason",
    "corner": "corner",
    "proxy": "proxy",
    "nucleus": "nucleus",
    "grader": "grader",
    "constant": "constant",
    "reuse": "reuse",
    "uniform": "uniform",
}

if __name__ == "__main__":
    if unknown := [name for name in sys.argv[1:] if name not in REPLICAS]:
        sys.exit(f"no replica is named {', '.join(unknown)}; there are {', '.join(REPLICAS)}")
    for name in sys.argv[1:] or REPLICAS:
        print(f"{name}\n\n{import_module(f'pmdkit_lab.ward.{REPLICAS[name]}').run().table()}")
