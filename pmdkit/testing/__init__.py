"""The public contract suites: run them on your own class. Plain asserts; pytest is not needed."""

from importlib import import_module
from typing import Any

# name -> module, imported on first use, so that one suite does not import the packages of the others
SUITES = {
    "check_engine": "pmdkit.testing.engines",
    "check_objective": "pmdkit.testing.objectives",
    "check_parity": "pmdkit.testing.golden",
    "check_task": "pmdkit.testing.tasks",
}

__all__ = ["check_engine", "check_objective", "check_parity", "check_task"]


def __getattr__(name: str) -> Any:
    if name in SUITES:
        return getattr(import_module(SUITES[name]), name)
    raise AttributeError(f"module 'pmdkit.testing' has no attribute '{name}'; it has {', '.join(SUITES)}")
