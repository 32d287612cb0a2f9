"""The exercises: a file per lesson, lesson_103.py with EXERCISES = (first, second, ...). Loaded on first use."""

import functools
import importlib
import pkgutil

from pmdkit.errors import unknown
from pmdkit.learn.exercise import Exercise


@functools.cache
def lessons() -> tuple[str, ...]:
    """Numbers of the lessons that have exercises, in order."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    return tuple(sorted(name.removeprefix("lesson_") for name in names if name.startswith("lesson_")))


@functools.cache
def of_lesson(number: str) -> tuple[Exercise, ...]:
    """The exercises of a lesson, in order."""
    if number not in lessons():
        raise ValueError(unknown("lesson", number, lessons()))
    module = importlib.import_module(f"{__name__}.lesson_{number}")
    found: tuple[Exercise, ...] = module.EXERCISES
    assert [e.id for e in found] == [f"{number}.{i}" for i in range(1, len(found) + 1)]
    return found


def exercise(which: str) -> Exercise:
    """The exercise with an id such as "103.1"."""
    number, _, _ = which.partition(".")
    known = {e.id: e for e in (of_lesson(number) if number in lessons() else ())}
    if which not in known:
        raise ValueError(unknown("exercise", which, ids()))
    return known[which]


def ids() -> list[str]:
    """Of all exercises, in the order of the course."""
    return [e.id for number in lessons() for e in of_lesson(number)]
