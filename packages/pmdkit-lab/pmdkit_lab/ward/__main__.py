"""`python -m pmdkit_lab.ward NAME...` prints the tables of replicas; without a name, those of all."""

import sys
from importlib import import_module
from pathlib import Path

REPLICAS = sorted(path.stem for path in Path(__file__).parent.glob("[a-z]*.py") if path.stem != "replica")

if __name__ == "__main__":
    if unknown := set(sys.argv[1:]) - set(REPLICAS):
        sys.exit(f"no replica is named {', '.join(sorted(unknown))}; there are {', '.join(REPLICAS)}")
    for name in sys.argv[1:] or REPLICAS:
        print(f"{name}\n\n{import_module(f'pmdkit_lab.ward.{name}').run().table()}")
