"""Countdown: reach a target from given numbers. Many responses are right; checking is easier than finding.

Below the task: how expressions are evaluated, without eval, and which values some numbers can reach.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement, product
from typing import ClassVar

import numpy as np

from pmdkit.envs.bandit import Indices
from pmdkit.envs.build import check_whole
from pmdkit.envs.tokens.problem import EOS, FEW_PROMPTS, TokenProblem
from pmdkit.errors import unknown

OPERATORS = "+-*/"
NUMBER, PRODUCT, SUM = 3, 2, 1  # precedence of an expression

Solution = tuple[tuple[str, ...], int]  # tokens and their precedence


@dataclass(frozen=True)
class Countdown(TokenProblem):
    """Numbers and a target, answered by an expression that equals the target and uses each number at most once.

    The prompt is the numbers from small to large, then the target, which is not one of them. Every pair of numbers and
    target that has a solution is equally likely. Every number is one token. Division must leave no remainder.

    A uniform policy almost never passes; this task needs a warm start.

    Good values: 3 numbers up to 9 and targets up to 20 with "+-*"; 4 numbers are harder, "/" a little.
    """

    name: ClassVar[str] = "countdown"

    numbers: int = 3
    "Numbers given."
    largest: int = 9
    "Largest possible number; numbers start at 1 and may repeat."
    highest: int = 20
    "Highest target; the lowest is 1."
    operators: str = "+-*"
    "Operators in the vocabulary, some of + - * /."

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
        """The numbers from 1 up, operators, parentheses if there are three numbers or more, `<eos>`."""
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
                f"no target up to {self.highest} can be reached with '{self.operators}' apart from the numbers "
                "themselves; raise env.highest or env.largest, or allow more env.operators"
            )
        return np.array(rows, dtype=np.int64) - 1  # a number's token id is the number minus 1

    def sample(self, rng: np.random.Generator, count: int) -> Indices:
        """[count, L] prompts drawn from the table."""
        return self.table[rng.integers(len(self.table), size=count)]

    def check(self, prompt: Indices, response: list[int]) -> bool:
        """Whether a response is an expression of the given numbers that equals the target."""
        words = [self.vocabulary[token] for token in response]
        *given, target = (self.vocabulary[token] for token in prompt)
        return Counter(filter(str.isdigit, words)) <= Counter(given) and evaluate(words) == int(target)

    def answer(self, prompt: Indices, rng: np.random.Generator) -> list[int]:
        """An expression found by search; a random one if several choices of numbers reach the target."""
        *given, target = (int(self.vocabulary[token]) for token in prompt)
        found = reachable(tuple(given), self.operators)[target]
        return [self.vocabulary.index(word) for word in (*found[rng.integers(len(found))], EOS)]

    def all_prompts(self) -> Indices | None:
        """[S, L] the table."""
        return self.table if len(self.table) <= FEW_PROMPTS else None


def evaluate(words: Sequence[str]) -> int | None:
    """The value of an expression; None if it is not an expression, or divides with a remainder or by 0."""
    parser = ExpressionParser(words)
    result = parser.sum()
    return result if parser.place == len(words) else None


class ExpressionParser:
    """Recursive descent: a sum of products of factors; a factor is a number or a sum in parentheses."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.place = 0

    def take(self, wanted: str) -> str:
        """Consume and return the next token if it is one of those wanted, else return an empty string."""
        word = self.words[self.place] if self.place < len(self.words) else ""
        if not word or word not in wanted:
            return ""
        self.place += 1
        return word

    def sum(self) -> int | None:
        """product + product - product ..."""
        result = self.product()
        while result is not None and (sign := self.take("+-")):
            result = combine(result, sign, self.product())
        return result

    def product(self) -> int | None:
        """factor * factor / factor ..."""
        result = self.factor()
        while result is not None and (sign := self.take("*/")):
            result = combine(result, sign, self.factor())
        return result

    def factor(self) -> int | None:
        """A number, or a sum in parentheses."""
        if self.take("("):
            result = self.sum()
            return result if self.take(")") else None
        word = self.words[self.place] if self.place < len(self.words) else ""
        if not (word.isascii() and word.isdigit()):
            return None
        self.place += 1
        return int(word)


def combine(left: int | None, sign: str, right: int | None) -> int | None:
    """One operation on whole numbers; None where a side is missing or the quotient is not whole."""
    if left is None or right is None:
        return None
    if sign == "/":
        return left // right if right and left % right == 0 else None
    return left + right if sign == "+" else left - right if sign == "-" else left * right


@lru_cache(maxsize=4096)
def reachable(numbers: tuple[int, ...], operators: str) -> dict[int, tuple[tuple[str, ...], ...]]:
    """value -> expressions that reach it with two or more of the numbers, one for each choice of numbers."""
    best: dict[int, dict[int, Solution]] = {}  # bits of the numbers used -> value -> an expression
    for used in range(1, 2 ** len(numbers)):
        chosen = [i for i in range(len(numbers)) if used >> i & 1]
        if len(chosen) == 1:
            best[used] = {numbers[chosen[0]]: ((str(numbers[chosen[0]]),), NUMBER)}
            continue
        found: dict[int, Solution] = {}
        for part in parts(used):
            for (x, left), (y, right), sign in product(best[part].items(), best[used ^ part].items(), operators):
                result = combine(x, sign, y)
                if result is not None and result not in found:
                    found[result] = join(left, sign, right)
        best[used] = found
    solutions: dict[int, list[tuple[str, ...]]] = {}
    for used, found in best.items():
        if used & (used - 1):
            for result, (words, _) in found.items():
                solutions.setdefault(result, []).append(words)
    return {result: tuple(dict.fromkeys(rows)) for result, rows in solutions.items()}


def parts(used: int) -> Iterator[int]:
    """The proper, non-empty subsets of a set of bits."""
    part = (used - 1) & used
    while part:
        yield part
        part = (part - 1) & used


def join(left: Solution, sign: str, right: Solution) -> Solution:
    """left sign right, with parentheses only where the value would change without them."""
    level = SUM if sign in "+-" else PRODUCT
    return (*wrapped(left, left[1] < level), sign, *wrapped(right, right[1] < level + (sign in "-/"))), level


def wrapped(solution: Solution, needed: bool) -> tuple[str, ...]:
    """The tokens of an expression, in parentheses where needed."""
    return ("(", *solution[0], ")") if needed else solution[0]
