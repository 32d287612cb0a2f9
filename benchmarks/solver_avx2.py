"""The rows of real rewards of solver.py, without AVX-512: where the processor has it, NumPy is told not to use it.

The variable that says so is set in rows.toml, because NumPy reads it when it is imported.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from harness.rows import Measured
from numpy._core._multiarray_umath import __cpu_features__ as features
from solver import real

WIDE = "X86_V4"  # numpy's name for the common part of AVX-512


def measure(rounds: int) -> Iterator[Measured]:
    """The rows against the vectorised peer, which is compiled code that NumPy's choice does not touch."""
    if features.get(WIDE):
        raise RuntimeError(f"numpy {np.__version__} uses {WIDE} here; expected NPY_DISABLE_CPU_FEATURES to name it")
    for row in real(rounds):
        if row.key != "solver/real-lambertw":
            yield replace(row, key=row.key.replace("solver/", "solver_avx2/"))
