"""A calculator as a multi-turn environment: it answers a turn that ends with a line like `Calculate: 3+4*2`.

An environment is a function of the messages so far and of the data row, see `pmdkit.llm.contrib.turns.Environment`.
"""

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

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
    try:
        value = value_of(ast.parse(expression.strip(), mode="eval").body)
    except ZeroDivisionError:
        return "error: a division by zero"
    except (SyntaxError, ValueError, OverflowError):
        return "error: this is no arithmetic"
    return str(value.numerator) if value.denominator == 1 else f"{float(value):.12g}"


def value_of(node: ast.AST) -> Fraction:
    """The exact value of a parsed expression of numbers and the four operations."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return Fraction(str(node.value))
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        return OPERATIONS[type(node.op)](value_of(node.left), value_of(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -value_of(node.operand)
    raise ValueError(f"{type(node).__name__} is none of + - * /")
