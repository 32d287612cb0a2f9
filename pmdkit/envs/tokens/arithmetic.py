"""Whole-number expressions as rows of tokens: what one is worth, and which values some numbers can reach. No eval."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product

OPERATORS = "+-*/"
NUMBER, PRODUCT, SUM = 3, 2, 1  # how tightly an expression holds together

Solution = tuple[tuple[str, ...], int]  # tokens, and how tightly they hold


def value(words: Sequence[str]) -> int | None:
    """What an expression is worth; None for what is no expression, or divides with a remainder or by 0."""
    reader = Reader(words)
    result = reader.sum()
    return result if reader.place == len(words) else None


class Reader:
    """Recursive descent: a sum of products of factors; a factor is a number or a sum in parentheses."""

    def __init__(self, words: Sequence[str]) -> None:
        self.words = words
        self.place = 0

    def take(self, wanted: str) -> str:
        """The next token if it is one of those wanted, else nothing."""
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
    """left sign right, in parentheses only where the value would change without."""
    level = SUM if sign in "+-" else PRODUCT
    return (*wrapped(left, left[1] < level), sign, *wrapped(right, right[1] < level + (sign in "-/"))), level


def wrapped(solution: Solution, needed: bool) -> tuple[str, ...]:
    """The tokens of an expression, in parentheses where needed."""
    return ("(", *solution[0], ")") if needed else solution[0]
