"""How many cases the fault tests run: PMDKIT_FAULTS_SCALE multiplies what the fast suite does."""

import os

FACTOR = int(os.environ.get("PMDKIT_FAULTS_SCALE", "1"))


def scaled(number: int) -> int:
    """So many cases at the scale that is asked for."""
    return number * FACTOR
