"""The rows of solver.py for real rewards, without AVX-512, which NumPy is told not to use.

The environment variable for this is set in rows.toml, because NumPy reads it when it is imported.

Kept because rows solver_avx2/ hold the solver's speed on processors without AVX-512.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from harness.rows import Measured
from numpy._core._multiarray_umath import __cpu_features__ as features
from solver import real

WIDE = "X86_V4"  # numpy's name for the common part of AVX-512


def measure(rounds: int) -> Iterator[Measured]:
    """The rows against the vectorised peer, whose compiled code does not depend on NumPy's choice."""
    if features.get(WIDE):
        raise RuntimeError(f"numpy {np.__version__} uses {WIDE} here; expected NPY_DISABLE_CPU_FEATURES to name it")
    for row in real(rounds):
        if row.key != "solver/real-lambertw":
            yield replace(row, key=row.key.replace("solver/", "solver_avx2/"))
