"""Is a mathematical answer right? pmdkit's door to the package `strict_answers`, whose errors get exit codes here.

`from pmdkit import envs; envs.math_answers.verify(response, gold)` judges one response; `make_grader` makes what grades
a run, by its rules or by a reward function of your own.
"""

from pathlib import Path
from typing import Any

from pmdkit.envs.reward_functions import FunctionGrader, RewardRow, own_verdict
from pmdkit.errors import ResumeRefused, UsageError
from strict_answers import Grader, Item, Verdict, audit, verify
from strict_answers.journal import JournalDamaged, VerdictJournal

__all__ = [
    "FunctionGrader",
    "Grader",
    "Item",
    "RewardRow",
    "Verdict",
    "VerdictJournal",
    "audit",
    "make_grader",
    "open_journal",
    "own_verdict",
    "verify",
]


def make_grader(grade: str = "math", *, boxed: bool = False, score_cut_off: bool = False, **options: Any) -> Grader:
    """The grader that a [[reward]] names.

    Args:
        grade: "math" for the rules of `strict_answers`, "reasoning-gym", or a function such as "my.py:grade".
        boxed: take the answer from the last \\boxed{} instead of the last Answer: line ("math" only).
        score_cut_off: call a function for cut-off responses too, see `FunctionGrader`.
        options: workers, seconds, memory_mb and most_unscored of `strict_answers.Grader`.
    """
    try:
        if grade == "math":
            return Grader(boxed=boxed, **options)
        return FunctionGrader(grade, score_cut_off=score_cut_off, **options)
    except UsageError:
        raise
    except ValueError as problem:
        raise UsageError(str(problem)) from problem


def open_journal(path: Path) -> VerdictJournal:
    """The verdicts of a run on disk; ResumeRefused if the file is damaged."""
    try:
        return VerdictJournal(path)
    except JournalDamaged as problem:
        raise ResumeRefused(str(problem)) from problem
