"""Exercises that are checked offline and name the mistake. In a notebook: `learn.check("103.1", my_function)`.

Public names load on first use: every `pmdkit` command imports this package to learn its verb.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pmdkit_course.exercises import Answer, AnswerVerdict, Exercise, exercise, ids
    from pmdkit_course.judging import judge
    from pmdkit_course.learn import check, hint, needs, solution
    from pmdkit_course.lesson_files import stored_run

_FROM = {
    **dict.fromkeys(("Answer", "AnswerVerdict", "Exercise", "exercise", "ids"), "exercises"),
    **dict.fromkeys(("check", "hint", "needs", "solution"), "learn"),
    "judge": "judging",
    "stored_run": "lesson_files",
}

__all__ = [
    "Answer",
    "AnswerVerdict",
    "Exercise",
    "check",
    "exercise",
    "hint",
    "ids",
    "judge",
    "needs",
    "solution",
    "stored_run",
]


def __getattr__(name: str) -> Any:
    if name in _FROM:
        return getattr(import_module(f"pmdkit_course.{_FROM[name]}"), name)
    raise AttributeError(f"module 'pmdkit_course' has no attribute {name!r}")
