"""Generated problems: sums of a few numbers as word problems."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, ClassVar

import numpy as np

from pmdkit.envs.build import Kind
from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.options import Range
from pmdkit.randomness import derive

HELD_OUT = 10  # one sum in this many is never trained on
NAMES = ("Ana", "Ben", "Chen", "Dora", "Emil", "Fatima", "Goran", "Hana")
THINGS = ("apples", "books", "coins", "eggs", "nuts", "pears", "shells", "stamps")


@dataclass(frozen=True)
class Story:
    """One kind of story: its opening, the words before each further number, used in turn, and the question."""

    start: str
    links: tuple[str, ...]
    end: str

    def text(self, numbers: Sequence[int], name: str, things: str, turn: int = 0) -> str:
        """The story of two or more numbers, in order; `turn` is the index of the first link."""
        more = [f"{self.links[(turn + k) % len(self.links)]} {number}" for k, number in enumerate(numbers[1:])]
        middle = ", ".join(more[:-1]) + " and " * (len(more) > 1) + more[-1]
        opening = self.start.format(name=name, things=things, first=numbers[0])
        return f"{opening}, {middle}. {self.end.format(name=name, things=things)}"


STORIES = (
    Story("{name} has {first} {things}", ("buys", "finds", "gets", "picks"), "How many {things} now?"),
    Story("A box has {first} {things}", ("a bag", "a bowl", "a jar", "a pot"), "How many {things} in all?"),
    Story("{name} sold {first} {things}", ("then", "later", "next"), "How many in all?"),
    Story("We saw {first} {things}", ("then", "after that", "later"), "How many?"),
)


@dataclass(frozen=True)
class Arithmetic(Kind):
    """Sums of `numbers` numbers of `digits` digits, as stories: "Ana has 3 apples, buys 5, finds 2 and gets 7. ...".

    Problem i depends only on i and on the options. One sum in ten is held out, chosen by its numbers and their order
    alone, so that no held-out sum is trained on in a different wording.

    Good values: 4 numbers of 1 digit for the starter model; 2 digits are far harder.
    """

    name: ClassVar[str] = "arithmetic"

    numbers: Annotated[int, Range(2, 20)] = 4
    "How many numbers are added."
    digits: Annotated[int, Range(1, 9)] = 1
    "Digits of each number; the first is never 0."
    stories: Annotated[int, Range(1, len(STORIES))] = len(STORIES)
    "Number of kinds of story."
    problems: Annotated[int, Range(100, 1_000_000)] = 20_000
    "Number of problems, training and held-out ones together."

    def build(self) -> MathProblems:
        """The problems, numbered from 0."""
        sums = (derive(0, self.name, "held out", *self.operands(i)) for i in range(self.problems))
        held_out = np.array([hashed % HELD_OUT == 0 for hashed in sums])
        name = f"{self.name} with {self.numbers} numbers of {self.digits} digit{'s' * (self.digits > 1)}"
        return MathProblems(name, self.problem, np.flatnonzero(~held_out), np.flatnonzero(held_out))

    def problem(self, number: int) -> Problem:
        """The text and the answer of one problem."""
        operands = self.operands(number)
        openings = [(story, turn) for story in STORIES[: self.stories] for turn in range(len(story.links))]
        wording = derive(0, self.name, "wording", number) % (len(openings) * len(NAMES) * len(THINGS))
        wording, name = divmod(wording, len(NAMES))
        opening, things = divmod(wording, len(THINGS))
        story, turn = openings[opening]
        text = story.text(operands, NAMES[name], THINGS[things], turn)
        return Problem(f"{self.name}-{number:05d}", text, str(sum(operands)))

    @lru_cache(maxsize=65_536)  # noqa: B019 - few instances; the held-out split and each text need it
    def operands(self, number: int) -> tuple[int, ...]:
        """The numbers that one problem adds, in order."""
        low, high = 10 ** (self.digits - 1), 10**self.digits
        return tuple(low + derive(0, self.name, number, place) % (high - low) for place in range(self.numbers))
