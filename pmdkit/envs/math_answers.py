"""Is a mathematical answer right? pmdkit's door to the package `strict_answers`, whose errors get exit codes here.

`from pmdkit import envs; envs.math_answers.verify(response, gold)` judges one response; a `Grader` judges many by the
same rules, a `FunctionGrader` by a reward function of your own.
"""

from pathlib import Path

from pmdkit.errors import ResumeRefused
from strict_answers import FunctionGrader, Grader, Item, Verdict, audit, verify
from strict_answers.function_grader import RewardRow, own_verdict
from strict_answers.journal import JournalDamaged, VerdictJournal

__all__ = [
    "FunctionGrader",
    "Grader",
    "Item",
    "RewardRow",
    "Verdict",
    "VerdictJournal",
    "audit",
    "open_journal",
    "own_verdict",
    "verify",
]


def open_journal(path: Path) -> VerdictJournal:
    """The verdicts of a run on disk; ResumeRefused if the file is damaged."""
    try:
        return VerdictJournal(path)
    except JournalDamaged as problem:
        raise ResumeRefused(str(problem)) from problem
