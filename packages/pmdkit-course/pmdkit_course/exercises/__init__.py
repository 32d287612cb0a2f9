"""What an exercise is, and how to find one; each lesson has a file of them, such as lesson_103.py.

An exercise is a question, a right function, and recognised wrong ones. A lesson's file sets EXERCISES = (first, second,
...), which are numbered in this order, and is loaded on first use. Exercise 0 of a lesson, where it has one, is in
thread.py: its functions grow into one program.
"""

import functools
import gzip
import html
import inspect
import json
import pkgutil
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pmdkit.errors import EnvironmentLacks, UsageError, unknown
from pmdkit_course import lesson_files

Array = Any  # what a learner passes and returns is theirs
Answer = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class Exercise:
    """A function to be written, and what is known about it. Its task stands in its lesson.

    Attributes:
        solution: the function done, under the name that a learner sees; its own docstring says why it is right.
        inputs: arguments to compare on, drawn from a generator; at least three tuples, an edge case among them.
        slips: recognised wrong answers, at least two: from what is wrong and where to look, one or two sentences that
            do not give the answer away, to the function somebody would write who makes this mistake, or several such
            functions. Slips of one operation are in `variants` for all exercises.
        hints: steps towards the solution, from a nudge to almost all of it; at least two.
        tolerance: relative, of numbers.
        exact: answers are compared as they are (integers, words, orders) and not as floating-point numbers.
        zero: if not 0, the inputs fulfil an equation that rounding them would break: they keep all their digits, are
            shown with four, and numbers that differ by no more than `zero` agree.
        deadline: seconds for all calls together.
        varied: whether slips of one operation are tried too. There are hundreds, and a call that trains is too long.
        id: lesson and place in its file, "103.2".
    """

    solution: Answer
    inputs: Callable[[np.random.Generator], Sequence[tuple[Any, ...]]]
    slips: dict[str, Answer | tuple[Answer, ...]]
    hints: tuple[str, ...]
    tolerance: float = 1e-6
    exact: bool = False
    zero: float = 0.0
    deadline: float = 20.0
    varied: bool = True
    id: str = ""

    @property
    def lesson(self) -> str:
        """Number of its lesson, such as "103"."""
        return self.id.partition(".")[0]

    @property
    def name(self) -> str:
        """Name of the function to write."""
        return self.solution.__name__

    @property
    def title(self) -> str:
        """Title, in a few words."""
        return tasks(self.lesson)[self.id]["title"]

    @property
    def task(self) -> str:
        """What to write, Markdown, with shapes and units."""
        return tasks(self.lesson)[self.id]["task"]

    @property
    def start(self) -> str:
        """The function as a learner finds it, with a docstring and `return ...`."""
        return tasks(self.lesson)[self.id]["start"]

    @property
    def difficulty(self) -> int:
        """Difficulty, from 1 to 5."""
        return int(tasks(self.lesson)[self.id]["difficulty"])

    @property
    def minutes(self) -> int:
        """Minutes that a learner needs."""
        return int(tasks(self.lesson)[self.id]["minutes"])


@dataclass(frozen=True, repr=False)
class AnswerVerdict:
    """What is said of an answer. A notebook shows it as a sentence, in bold first words and not in colour alone.

    Attributes:
        right: whether it is; None if it could not be judged.
        says: one or two sentences for the learner.
        slip: number of the recognised mistake, if one was.
        exercise: its id.
        untouched: the function still returns an ellipsis.
        more: what to do next, or nothing.
        kind: of a slip that any exercise has, see `diagnosis.Diagnosis`; empty if none was found.
        case: arguments on which the answer is off, or nothing.
    """

    right: bool | None
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
        """The first words of the verdict, which stand out on a page, and the rest."""
        if self.right or self.untouched:
            first, _, rest = self.says.partition(". ")
            return first if not rest else first + ".", rest
        return "Not yet.", self.says

    def _repr_html_(self) -> str:
        first, rest = (in_html(part) for part in self.parts())
        mark = "&#10003; " if self.right else ""
        more = f"<br>{in_html(self.more)}" if self.more else ""
        # the bar has one of two colours that differ in lightness too; the text keeps the colour of the page
        bar = "#0072b2" if self.right else "#bf8300"
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


TASK = re.compile(
    r"\*\*Exercise (?P<id>[\d.]+): (?P<title>[^*]+?)\.?\*\* Difficulty (?P<difficulty>\d) of 5, about (?P<minutes>\d+) "
    r"minutes\.\n\n(?P<task>.+?)\n+%% tags=.*?\n(?P<start>.+?)\n+%%",
    re.DOTALL,
)
"An exercise in a lesson, whose comment marks are cut off and whose paragraphs are unwrapped."


@functools.cache
def tasks(lesson: str) -> dict[str, dict[str, str]]:
    """What a lesson says about its exercises, by id: title, difficulty, minutes, task and start."""
    (path,) = lesson_files.shipped().glob(f"{lesson}_*.py")
    text = re.sub(r"^# ?", "", path.read_text("utf-8"), flags=re.MULTILINE)
    head = re.sub(r"(\*\*Exercise [^\n]+)\n(?=\S)", r"\1 ", text)  # the first line of a task may be wrapped
    return {found["id"]: found.groupdict() for found in TASK.finditer(head)}


STORED = Path(__file__).parent / "reference_cases.json.gz"
"In a wheel, what answers are compared with, in place of the files with the solutions: stored.py writes it."
NO_SOLUTIONS = "this install has no solutions; `pmdkit learn course` in a checkout writes a kit that has them"


@functools.cache
def stored() -> dict[str, Any]:
    """The exercises of a wheel by id; empty in a checkout."""
    if not STORED.is_file():
        return {}
    found: dict[str, Any] = json.loads(gzip.decompress(STORED.read_bytes()))["exercises"]
    return found


def without_solution(which: str, entry: dict[str, Any]) -> Exercise:
    """An exercise from its entry in a wheel, which has no solutions: calling its solution raises EnvironmentLacks."""

    def solution(*arguments: Any) -> Any:
        raise EnvironmentLacks(NO_SOLUTIONS)

    solution.__name__ = entry["name"]
    names = [inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD) for name in entry["arguments"]]
    solution.__signature__ = inspect.Signature(names)  # type: ignore[attr-defined]
    slips: dict[str, Answer | tuple[Answer, ...]] = dict.fromkeys(entry["slips"], solution)
    tolerance, exact, zero, deadline = entry["limits"]
    return Exercise(solution, solution, slips, tuple(entry["hints"]), tolerance, exact, zero, deadline, id=which)


@functools.cache
def lessons() -> tuple[str, ...]:
    """Numbers of the lessons that have exercises, in order."""
    names = (module.name for module in pkgutil.iter_modules(__path__))
    found = {name.removeprefix("lesson_") for name in names if name.startswith("lesson_")}
    return tuple(sorted(found | {which.partition(".")[0] for which in stored()}))


@functools.cache
def of_lesson(number: str) -> tuple[Exercise, ...]:
    """The exercises of a lesson, in order."""
    if number not in lessons():
        raise ValueError(unknown("lesson", number, lessons()))
    if stored():
        return tuple(without_solution(w, entry) for w, entry in stored().items() if w.startswith(f"{number}."))
    found = pkgutil.resolve_name(f"{__name__}.lesson_{number}:EXERCISES")
    grown = pkgutil.resolve_name(f"{__name__}.thread:THREAD").get(number)
    own = [replace(e, id=f"{number}.{i}") for i, e in enumerate(found, 1)]
    return ((replace(grown, id=f"{number}.0"),) if grown else ()) + tuple(own)


def exercise(which: str) -> Exercise:
    """The exercise with an id such as "103.1"."""
    number, _, _ = which.partition(".")
    known = {e.id: e for e in (of_lesson(number) if number in lessons() else ())}
    if which not in known:
        raise UsageError(unknown("exercise", which, ids()))
    return known[which]


def ids() -> list[str]:
    """Ids of all exercises, in the order of the course."""
    return [e.id for number in lessons() for e in of_lesson(number)]
