"""Room 2: what the paper proves. NumPy in, NumPy out."""

from pmdkit.theory.binary_rewards import binary
from pmdkit.theory.boltzmann import pmd_part
from pmdkit.theory.lambert import pmd_mean

__all__ = ["binary", "pmd_mean", "pmd_part"]
