"""Generated problems: sums of a few numbers, told as little stories. The words are in word_problems."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from pmdkit.envs.kinds.options import check_whole
from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.envs.math.word_problems import STORIES, tell, wordings
from pmdkit.randomness import derive

HELD_OUT = 10  # one sum in so many is never trained on


@dataclass(frozen=True)
class Arithmetic:
    """Sums of `numbers` numbers of `digits` digits, as stories: "Ana has 3 apples, buys 5, finds 2 and gets 7. ...".

    Problem i is a function of i and of the options. One sum in ten is held out, decided by its numbers and their order
    alone, so that no held-out sum is trained on in other words.

    Good values: 4 numbers of 1 digit for the starter model; 2 digits are far harder.
    """

    name: ClassVar[str] = "arithmetic"

    numbers: int = 4
    "How many numbers are added."
    digits: int = 1
    "Of each number; the first digit is never 0."
    stories: int = len(STORIES)
    "How many kinds of story are told."
    problems: int = 20_000
    "How many problems there are, training and held-out ones together."

    def __post_init__(self) -> None:
        check_whole("numbers", self.numbers, 2, 20)
        check_whole("digits", self.digits, 1, 9)
        check_whole("stories", self.stories, 1, len(STORIES))
        check_whole("problems", self.problems, 100, 1_000_000)

    def build(self) -> MathProblems:
        """The problems, numbered from 0."""
        held_out = np.array([self.is_held_out(self.operands(i)) for i in range(self.problems)])
        name = f"{self.name} with {self.numbers} numbers of {self.digits} digit{'s' * (self.digits > 1)}"
        return MathProblems(name, self.problem, np.flatnonzero(~held_out), np.flatnonzero(held_out))

    def problem(self, number: int) -> Problem:
        """The text and the answer of one problem."""
        if not 0 <= number < self.problems:
            raise ValueError(f"problem number is {number}; expected 0 to {self.problems - 1}")
        operands = self.operands(number)
        wording = derive(0, self.name, "wording", number) % wordings(self.stories)
        return Problem(
            id=f"{self.name}-{number:05d}",
            problem=tell(operands, wording, self.stories),
            answer=str(sum(operands)),
            source="generated",
        )

    def operands(self, number: int) -> tuple[int, ...]:
        """The numbers that one problem adds, in their order."""
        low, high = 10 ** (self.digits - 1), 10**self.digits
        return tuple(low + derive(0, self.name, number, place) % (high - low) for place in range(self.numbers))

    def is_held_out(self, operands: tuple[int, ...]) -> bool:
        """Whether a sum is kept from training: by a hash of its numbers."""
        return derive(0, self.name, "held out", *operands) % HELD_OUT == 0
