"""Countdown: reach a target from given numbers. Many responses are right, and checking is easier than finding."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from typing import ClassVar

import numpy as np

from pmdkit.envs.kinds.options import check_whole
from pmdkit.envs.problem import Indices
from pmdkit.envs.tokens.arithmetic import OPERATORS, reachable, value
from pmdkit.envs.tokens.problem import EOS, TokenProblem
from pmdkit.envs.tokens.split import FEW
from pmdkit.nearest import unknown


@dataclass(frozen=True)
class Countdown(TokenProblem):
    """Numbers and a target, answered by an expression that is worth the target and uses each number at most once.

    The prompt is the numbers from small to large, then the target, which is none of them. Every pair of numbers and
    target that has a solution is equally likely. Every number is one token. Division must leave no remainder.

    A uniform policy passes almost never; this one needs a warm start.

    Good values: 3 numbers up to 9 and targets up to 20 with "+-*"; 4 numbers are harder, "/" a little.
    """

    name: ClassVar[str] = "countdown"

    numbers: int = 3
    "Numbers given."
    largest: int = 9
    "Largest of them; they are drawn from 1 on, repeats allowed."
    highest: int = 20
    "Highest target; the lowest is 1."
    operators: str = "+-*"
    "Those of the vocabulary, some of + - * /."

    def __post_init__(self) -> None:
        check_whole("numbers", self.numbers, 2, 4)
        check_whole("largest", self.largest, 1, 20)
        check_whole("highest", self.highest, 1, 1000)
        signs = self.operators
        if not isinstance(signs, str) or not signs or len(set(signs)) < len(signs):
            raise ValueError(f"env.operators is {signs!r}; expected some of {OPERATORS}, each once, such as '+-'")
        for sign in signs:
            if sign not in OPERATORS:
                raise ValueError(unknown("operator in env.operators", sign, OPERATORS))

    @cached_property
    def vocabulary(self) -> tuple[str, ...]:
        """The numbers from 1 on, operators, parentheses where three numbers can need them, `<eos>`."""
        words = map(str, range(1, max(self.largest, self.highest) + 1))
        return (*words, *self.operators, *("()" if self.numbers > 2 else ""), EOS)

    @property
    def prompt_length(self) -> int:
        """The numbers and the target."""
        return self.numbers + 1

    @property
    def width(self) -> int:
        """T: numbers, operators between them, parentheses around all but the outermost two, `<eos>`."""
        return 2 * self.numbers - 1 + 2 * (self.numbers - 2) + 1

    @cached_property
    def table(self) -> Indices:
        """[S, L] every prompt that has a solution."""
        rows = [
            (*numbers, target)
            for numbers in combinations_with_replacement(range(1, self.largest + 1), self.numbers)
            for target in sorted(reachable(numbers, self.operators))
            if 1 <= target <= self.highest and target not in numbers
        ]
        if not rows:
            raise ValueError(
                f"no target up to {self.highest} can be reached with '{self.operators}' and is none of the numbers; "
                "raise env.highest or env.largest, or allow more env.operators"
            )
        return np.array(rows, dtype=np.int64) - 1  # the token of a number stands one place below it

    def sample(self, rng: np.random.Generator, count: int) -> Indices:
        """[count, L] prompts of the table."""
        return self.table[rng.integers(len(self.table), size=count)]

    def check(self, prompt: Indices, response: list[int]) -> bool:
        """Whether a response is an expression of numbers that were given, and worth the target."""
        words = [self.vocabulary[token] for token in response]
        *given, target = (self.vocabulary[token] for token in prompt)
        return Counter(filter(str.isdigit, words)) <= Counter(given) and value(words) == int(target)

    def answer(self, prompt: Indices, rng: np.random.Generator) -> list[int]:
        """An expression found by search; any of several where different numbers lead there."""
        *given, target = (int(self.vocabulary[token]) for token in prompt)
        found = reachable(tuple(given), self.operators)[target]
        return [self.vocabulary.index(word) for word in (*found[rng.integers(len(found))], EOS)]

    def all_prompts(self) -> Indices | None:
        """[S, L] the table."""
        return self.table if len(self.table) <= FEW else None
