"""Generated problems of a primary school, in four kinds, two of which are for evaluation only."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from pmdkit.envs.build import Kind
from pmdkit.envs.math.problem import MathProblems, Problem
from pmdkit.envs.math.synthetic import HELD_OUT, NAMES, THINGS
from pmdkit.options import Range
from pmdkit.randomness import derive

TRAINED, ASKED = ("sum", "story"), ("product", "two-step")
KINDS = (*TRAINED, *ASKED)
STORIES = (
    "{name} has {a} {things} and buys {b} more. How many {things} does {name} have now?",
    "{name} has {a} {things} in one box and {b} in another. How many {things} are there in all?",
    "There were {total} {things} on a table, and {name} took {a} of them. How many are left?",
    "{name} had some {things}, gave away {a} and has {b} left. How many were there at first?",
)
TWO_STEPS = (
    ("{name} has {a} boxes of {b} {things} and finds {c} more. How many {things} is that?", 1),
    ("{name} buys {a} bags of {b} {things} and gives {c} away. How many {things} are left?", -1),
)


@dataclass(frozen=True)
class School(Kind):
    """Sums of two numbers, plain and as stories; beside them, held out as a whole, harder kinds.

    The kinds, in turn by number: `sum` ("What is 17 + 8?") and `story` are trained on; `product` of two numbers of two
    digits and `two-step` (multiply, then add or subtract) are only evaluated. They show what training on those
    does not teach. One problem in ten of each kind is held out, chosen by its numbers alone, smaller one first: no
    held-out sum is trained on in another wording or order.

    Good values: 30 for a model of a hundred million weights that was tuned to follow instructions.
    """

    name: ClassVar[str] = "school"

    largest: Annotated[int, Range(10, 1000)] = 30
    "Largest number in a sum or story; the smallest is 2."
    problems: Annotated[int, Range(400, 1_000_000)] = 8000
    "Numbers of problems; a quarter for each kind."

    def build(self) -> MathProblems:
        """The problems, numbered from 0. Of the kinds that are only evaluated, those not held out go unused."""
        hashes = (derive(0, self.name, "held out", *sorted(self.operands(n))) for n in range(self.problems))
        apart = np.array([hashed % HELD_OUT == 0 for hashed in hashes])
        trained = np.arange(self.problems) % len(KINDS) < len(TRAINED)
        name = f"{self.name} with numbers up to {self.largest}"
        return MathProblems(name, self.problem, np.flatnonzero(trained & ~apart), np.flatnonzero(apart))

    def problem(self, number: int) -> Problem:
        """The text and the answer of one problem; its id begins with its kind."""
        kind, (a, b, *more) = KINDS[number % len(KINDS)], self.operands(number)
        wording, name = divmod(derive(0, self.name, "wording", number), len(NAMES))
        wording, things = divmod(wording, len(THINGS))
        words = {"name": NAMES[name], "things": THINGS[things], "a": a, "b": b}
        answer = a + b
        if kind == "sum":
            text = f"What is {a} + {b}?"
        elif kind == "story":
            story = wording % len(STORIES)
            text = STORIES[story].format(**words, total=a + b)
            answer = b if "{total}" in STORIES[story] else a + b
        elif kind == "product":
            text, answer = f"What is {a} * {b}?", a * b
        else:
            template, sign = TWO_STEPS[wording % len(TWO_STEPS)]
            text, answer = template.format(**words, c=more[0]), a * b + sign * more[0]
        return Problem(f"{kind}-{number:05d}", text, str(answer))

    def operands(self, number: int) -> tuple[int, ...]:
        """The numbers of one problem, in the order of its text."""
        low, high, count = {
            "product": (11, 99, 2),
            "two-step": (3, 9, 3),  # a * b is at least 9, so that nothing given away is missing
        }.get(KINDS[number % len(KINDS)], (2, self.largest, 2))
        return tuple(low + derive(0, self.name, number, place) % (high + 1 - low) for place in range(count))
