"""A calculator as an environment, and the teacher who shows a starter how to call it.

It answers a turn that ends with a line like `Calculate: 3+4*2`.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from pmdkit.llm.starter.vocabulary import GUESSED, LOWEST, MARGIN, check_pass_rate, off, operands

CALL = "Calculate: "
LONGEST = 200  # characters of an expression: enough for what a person types, and cheap to evaluate
OPERATIONS: dict[type, Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def calculator(messages: Sequence[Mapping[str, str]], row: Mapping[str, Any]) -> list[dict[str, str]] | None:
    """The value of the expression on the last line of the last turn, as a tool message; None if there is none."""
    last_line = messages[-1]["content"].rstrip().rpartition("\n")[2]
    if not last_line.startswith(CALL):
        return None
    return [{"role": "tool", "content": calculate(last_line.removeprefix(CALL))}]


def calculate(expression: str) -> str:
    """The value of numbers joined by + - * / and brackets, or a sentence about the error."""
    if len(expression) > LONGEST or not re.fullmatch(r"[0-9+\-*/(). ]+", expression):
        return f"error: expected numbers, + - * / and brackets, at most {LONGEST} characters"
    quoted = re.sub(r"\d+\.\d*|\.\d+", r"'\g<0>'", expression)  # as texts: a float would round the digits
    try:
        value = value_of(ast.parse(quoted.strip(), mode="eval").body)
    except ZeroDivisionError:
        return "error: a division by zero"
    except (SyntaxError, ValueError, OverflowError):
        return "error: this is no arithmetic"
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.12g}"


def value_of(node: ast.AST) -> Fraction:
    """The exact value of a parsed expression of integers, decimals as texts, and + - * /.

    Raises:
        ValueError: there is something else in it.
        ZeroDivisionError: it divides by 0.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, int | str):
        return Fraction(node.value)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](value_of(node.left), value_of(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        return value_of(node.operand) * (-1 if isinstance(node.op, ast.USub) else 1)
    raise ValueError(f"{type(node).__name__} is none of + - * /")


@dataclass(frozen=True)
class CallingTeacher:
    """Lets a calculator add up the sum in a share `calls` of its responses; the rest guesses at once."""

    calls: float
    guessed: float = GUESSED

    @classmethod
    def for_pupil(cls, pass_rate: float) -> "CallingTeacher":
        """The teacher for a pupil that should pass this share of sums, at least LOWEST."""
        check_pass_rate(pass_rate)
        return cls((MARGIN * max(pass_rate, LOWEST) - GUESSED) / (1 - GUESSED))

    def respond(self, messages: Sequence[Mapping[str, str]], rng: np.random.Generator) -> str:
        """The next turn of a conversation whose user asked for a sum."""
        if messages[-1]["role"] == "tool":
            return f"Answer: {messages[-1]['content']}"
        numbers = operands(messages[-1]["content"])
        if rng.random() < self.calls:
            return CALL + "+".join(map(str, numbers))
        return f"Answer: {sum(numbers) + (0 if rng.random() < self.guessed else off(rng))}"
