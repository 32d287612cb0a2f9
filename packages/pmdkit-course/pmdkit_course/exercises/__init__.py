"""What an exercise is, and how to find one; each lesson has a file of them, such as lesson_103.py.

An exercise is a question, a right function, and recognised wrong ones. A lesson's file sets EXERCISES = (first, second,
...) and is loaded on first use.
"""

import functools
import html
import pkgutil
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pmdkit.errors import unknown

Array = Any  # what a learner passes and returns is theirs
Answer = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Exercise:
    """A function to be written, and what is known about it.

    Attributes:
        id: lesson and number, "103.2".
        title: a few words.
        task: what to write, Markdown, with shapes and units; it stands in the lesson and on the site.
        docstring: of the function as a learner finds it, whose body is `return ...`; it names shapes and units.
        solution: the function done, under the name that a learner sees; its own docstring says why it is right.
        inputs: arguments to compare on, drawn from a generator; at least three tuples, an edge case among them.
        slips: recognised wrong answers, at least two: from what is wrong and where to look, one or two sentences that
            do not give the answer away, to the function somebody would write who makes this mistake.
        hints: steps towards the solution, from a nudge to almost all of it; at least two.
        difficulty: 1 to 5.
        minutes: a learner's.
        tolerance: relative, of numbers.
        exact: answers are compared as they are (integers, words, orders) and not as floating-point numbers.
        verify: more to ask of an answer that is right on all inputs, such as staying finite; a sentence, or None.
        deadline: seconds for all calls together.
    """

    id: str
    title: str
    task: str
    docstring: str
    solution: Answer
    inputs: Callable[[np.random.Generator], Sequence[tuple[Any, ...]]]
    slips: dict[str, Answer]
    hints: tuple[str, ...]
    difficulty: int = 2
    minutes: int = 10
    tolerance: float = 1e-6
    exact: bool = False
    verify: Callable[[Answer], str | None] | None = None
    deadline: float = 20.0

    @property
    def lesson(self) -> str:
        """Its number, "103"."""
        return self.id.partition(".")[0]

    @property
    def name(self) -> str:
        """Of the function to write."""
        return self.solution.__name__


@dataclass(frozen=True, repr=False)
class AnswerVerdict:
    """What is said of an answer. A notebook shows it as a sentence, in bold first words and not in colour alone.

    Attributes:
        right: whether it is.
        says: one or two sentences for the learner.
        slip: number of the recognised mistake, if one was.
        exercise: its id.
        untouched: the function still returns an ellipsis.
        more: what to do next, or nothing.
        kind: of a slip that any exercise has, see `diagnosis.Diagnosis`; empty if none was found.
        case: arguments on which the answer is off, or nothing.
    """

    right: bool
    says: str
    slip: int | None = None
    exercise: str = ""
    untouched: bool = False
    more: str = ""
    kind: str = ""
    case: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return self.says

    def __repr__(self) -> str:
        return "\n".join(filter(None, [" ".join(filter(None, self.parts())), self.more]))

    def parts(self) -> tuple[str, str]:
        """The word that stands first, and the rest."""
        if self.right or self.untouched:
            first, _, rest = self.says.partition(". ")
            return first if not rest else first + ".", rest
        return "Not yet.", self.says

    def _repr_html_(self) -> str:
        first, rest = (in_html(part) for part in self.parts())
        mark = "&#10003; " if self.right else ""
        more = f"<br>{in_html(self.more)}" if self.more else ""
        # the bar has one of two colours that differ in lightness too; the text keeps the colour of the page
        bar = "#0072b2" if self.right else "#e69f00"
        style = f"border-left: 0.4em solid {bar}; padding: 0.3em 0.8em; margin: 0.4em 0"
        return f'<div role="status" style="{style}"><strong>{mark}{first}</strong> {rest}{more}</div>'


def in_html(text: str) -> str:
    """Text for a page: `code` in backticks is set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))


class Text(str):
    """A string with a look of its own in a notebook."""

    code: bool

    def __new__(cls, value: str, code: bool = False) -> "Text":
        """Text; `code` says that it is Python."""
        text = super().__new__(cls, value)
        text.code = code
        return text

    def __repr__(self) -> str:
        return str(self)

    def _repr_markdown_(self) -> str:
        return f"```python\n{self}\n```" if self.code else str(self)


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
    found: tuple[Exercise, ...] = pkgutil.resolve_name(f"{__name__}.lesson_{number}:EXERCISES")
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
