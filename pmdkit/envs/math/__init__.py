"""Mathematical problems with checkable answers: read from files, or generated. No torch here.

The kinds are loaded on first use, so importing `pmdkit.envs.math.problem` alone is cheap.
"""

from typing import Any

from pmdkit.envs.math.problem import MathProblems, Problem

__all__ = ["MATH_KINDS", "MathProblems", "Problem", "check_math", "make_math"]


def make_math(table: dict[str, Any]) -> MathProblems:
    """The problems that an [env] table describes: `kind`, a key of MATH_KINDS or "my.py:MyKind", and its options."""
    from pmdkit.envs.build import build
    from pmdkit.envs.math.datasets import MATH_KINDS

    return build(table, MATH_KINDS, MathProblems)


def check_math(table: dict[str, Any]) -> None:
    """Reject an [env] table whose kind or options are wrong, before anything is read or generated."""
    from pmdkit.envs.build import described
    from pmdkit.envs.math.datasets import MATH_KINDS

    described(table, MATH_KINDS, MathProblems)


def __getattr__(name: str) -> Any:
    """MATH_KINDS, loaded on first use."""
    if name != "MATH_KINDS":
        raise AttributeError(f"module 'pmdkit.envs.math' has no attribute '{name}'")
    from pmdkit.envs.math.datasets import MATH_KINDS

    return MATH_KINDS
