"""Mathematical problems with checkable answers: read from files, or generated. No torch here."""

from typing import Any

from pmdkit.envs.build import build, described
from pmdkit.envs.math.datasets import MATH_KINDS
from pmdkit.envs.math.problem import MathProblems, Problem

__all__ = ["MATH_KINDS", "MathProblems", "Problem", "check_math", "make_math"]


def make_math(table: dict[str, Any], gold: bool = True) -> MathProblems:
    """The problems that an [env] table describes: `kind`, a key of MATH_KINDS or "my.py:MyKind", and its options.

    Without `gold`, rows of files need no answer: no reward takes it.
    """
    return build(table, MATH_KINDS, MathProblems, gold=gold)


def check_math(table: dict[str, Any]) -> None:
    """Raise ValueError if the kind or an option of an [env] table is wrong; nothing is read or generated."""
    described(table, MATH_KINDS, MathProblems)
