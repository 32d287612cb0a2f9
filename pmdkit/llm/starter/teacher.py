"""The sloppy teacher: answers to sums, step by step or guessed at once, right too seldom. Nothing here learns."""

import re
from dataclasses import dataclass

import numpy as np

from pmdkit.errors import UsageError

MARGIN = 1.5  # the teacher is right this much more often than its pupil should be, so that the pupil gets there
STEPS = 0.7  # a pupil that never reasons, or always does, would have nothing to discover
LOWEST, HIGHEST = 0.2, 0.5  # what this teacher can aim at; a pupil that should do worse stops earlier
GUESSED = 0.2  # seldom enough that reinforcing right answers reinforces reasoning


@dataclass(frozen=True)
class Teacher:
    """Answers a sum in the format of the verifier, with mistakes.

    A share `steps` of its responses adds number by number, and every addition is wrong with probability `slip`; the
    rest guesses at once and is right with probability `guessed`. A wrong number is 1 to 3 too large.

    Attributes:
        slip: of one addition.
        steps: share of responses that reason.
        guessed: share of right guesses.
    """

    slip: float
    steps: float = STEPS
    guessed: float = GUESSED

    @classmethod
    def for_pupil(cls, pass_rate: float, numbers: int) -> "Teacher":
        """The teacher of a pupil that should pass a given share of sums of so many numbers; one of LOWEST or more."""
        check_pass_rate(pass_rate)
        reasoned = (MARGIN * max(pass_rate, LOWEST) - (1 - STEPS) * GUESSED) / STEPS
        return cls(slip=1 - reasoned ** (1 / (numbers - 1)))

    def share_right(self, numbers: int) -> float:
        """The share of right responses to sums of so many numbers."""
        return self.steps * (1 - self.slip) ** (numbers - 1) + (1 - self.steps) * self.guessed

    def respond(self, problem: str, rng: np.random.Generator) -> str:
        """One response, its last line such as "Answer: 17"."""
        first, *others = operands(problem)
        if rng.random() >= self.steps:
            return f"Answer: {first + sum(others) + (0 if rng.random() < self.guessed else off(rng))}"
        total, additions = first, []
        for operand in others:
            result = total + operand + (off(rng) if rng.random() < self.slip else 0)
            additions.append(f"{total}+{operand}={result}")
            total = result
        return f"{', '.join(additions)}\nAnswer: {total}"


def off(rng: np.random.Generator) -> int:
    """A mistake: 1, 2 or 3 too many. Never too few: two mistakes would cancel, and wrong steps be rewarded."""
    return int(rng.integers(1, 4))


def operands(problem: str) -> list[int]:
    """The numbers in the text of a sum, in their order."""
    found = [int(digits) for digits in re.findall(r"\d+", problem)]
    if len(found) < 2:
        raise UsageError(
            f"the problem is {problem!r}; the starter's teacher adds the numbers of a story and expects two or more: "
            'take env.kind = "arithmetic"'
        )
    return found


def check_pass_rate(pass_rate: float) -> None:
    """Refuse a target that no teacher leads to."""
    if not 0 < pass_rate <= HIGHEST:
        raise UsageError(
            f"pass_rate of the warm start is {pass_rate}; expected a number above 0 and up to {HIGHEST}: the starter's "
            "teacher makes mistakes, so that something is left to learn"
        )
