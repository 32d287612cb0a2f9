"""Countdown: given numbers and a target, find an expression; its terms can be reordered, so many answers are right."""

from dataclasses import dataclass
from functools import cached_property
from itertools import permutations
from typing import Annotated, ClassVar

import numpy as np

from pmdkit.envs.bandit import Indices
from pmdkit.envs.build import Kind
from pmdkit.envs.tokens.problem import EOS, BatchedProblem, Flags, all_rows
from pmdkit.options import Range

OPERATORS = ("+", "-", "*")
ROUNDS = 1000  # batches drawn before such targets count as impossible


@dataclass(frozen=True)
class Countdown(Kind, BatchedProblem):
    """Numbers and a target, answered by an expression that uses each number once and has the target as its value.

    Operators are applied from left to right: 2 + 3 * 4 is 20. A prompt is drawn as an expression, uniformly among
    those whose value is from 0 to `target`, and shown as its numbers in random order and its value.

    Good values: 3 numbers up to 5 with targets up to 20 need a warm start to a pass rate of 0.2.
    """

    name: ClassVar[str] = "countdown"

    numbers: Annotated[int, Range(2, 4)] = 3
    "Numbers of a prompt, all to be used."
    largest: Annotated[int, Range(2, 100)] = 5
    "The largest number; the smallest is 1."
    target: Annotated[int, Range(1, 1000)] = 20
    "The largest target; the smallest is 0."

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The numbers from 0, the operators, `<eos>`."""
        return (*map(str, range(max(self.largest, self.target) + 1)), *OPERATORS, EOS)

    @property
    def prompt_length(self) -> int:
        """L: one token for each number, and one for the target."""
        return self.numbers + 1

    @property
    def width(self) -> int:
        """T: numbers, operators between them, `<eos>`."""
        return 2 * self.numbers

    def sample(self, rng: np.random.Generator, count: int) -> Indices:
        """[count, L] prompts with an answer, by rejection sampling."""
        kept: list[Indices] = []
        missing = count
        for _ in range(ROUNDS):
            numbers = rng.integers(1, self.largest + 1, size=(2 * missing + 16, self.numbers))
            value = values(numbers, rng.integers(len(OPERATORS), size=(len(numbers), self.numbers - 1)))
            prompts = np.hstack([rng.permuted(numbers, axis=1), value[:, None]])
            kept.append(prompts[(value >= 0) & (value <= self.target)][:missing])
            missing -= len(kept[-1])
            if not missing:
                return np.concatenate(kept)
        raise ValueError("expressions almost never have such a value; raise env.target or lower env.largest")

    def right(self, prompts: Indices, responses: Indices, length: Indices) -> Flags:
        """[N] which responses are expressions of all the numbers with the value of the target."""
        numbers, operators = responses[:, :-1:2], responses[:, 1:-1:2] - self.vocabulary.index(OPERATORS[0])
        proper = (length == self.width - 1) & ((operators >= 0) & (operators < len(OPERATORS))).all(axis=1)
        proper &= (np.sort(numbers, axis=1) == np.sort(prompts[:, :-1], axis=1)).all(axis=1)
        return proper & (values(numbers, operators) == prompts[:, -1])

    def answers(self, prompts: Indices, rng: np.random.Generator) -> tuple[Indices, Flags]:
        """[N, T] a random right expression for each prompt, and the masks: every order and operator is tried."""
        orders, operators = self.expressions
        value = values(prompts[:, orders], operators)  # [N, expressions]
        chosen = np.where(value == prompts[:, -1:], rng.random(value.shape), -1).argmax(axis=1)
        tokens = np.full((len(prompts), self.width), self.eos)
        tokens[:, :-1:2] = np.take_along_axis(prompts, orders[chosen], axis=1)
        tokens[:, 1:-1:2] = operators[chosen] + self.vocabulary.index(OPERATORS[0])
        return tokens, np.ones(tokens.shape, dtype=np.bool_)

    @cached_property
    def expressions(self) -> tuple[Indices, Indices]:
        """The places of the numbers [E, n] and the operators [E, n - 1] of every expression."""
        orders = np.array(list(permutations(range(self.numbers))))
        operators = all_rows(len(OPERATORS), self.numbers - 1)
        return np.repeat(orders, len(operators), axis=0), np.tile(operators, (len(orders), 1))


def values(numbers: Indices, operators: Indices) -> Indices:
    """[...] the values of expressions with numbers [..., n] and operators [..., n - 1], from left to right."""
    value = numbers[..., 0]
    for place in range(operators.shape[-1]):
        number, operator = numbers[..., place + 1], operators[..., place]
        value = np.select([operator == 0, operator == 1], [value + number, value - number], value * number)
    return value
