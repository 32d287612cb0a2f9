"""Claims of a lesson's prose about its outputs: each must hold in the executed lesson, and fail when altered.

A claim is written beside its sentence, in a comment that neither Jupyter nor the site shows:

    <!-- claim: goes from 0.01 to 0.38 :: said(p0, after) -->

On the left are words of the sentence, on the right Python in the lesson's own names, as they are at that place.
`said(a, b)` holds if each value rounds to the number as it is written there; None skips a number. `about(a, b)` holds
if each is within a tenth of it, or `within` another share. `quoted` is the list of the numbers, for other comparisons:
`min(rates) >= quoted[0]`. A fact without numbers is a comparison.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

CLAIM = re.compile(r"\n?<!-- claim:\s((?:(?!-->).)*?)\s::\s((?:(?!-->).)*?)\s-->", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.,])(?:(?<![\d)])[-\u2212])?\d+(?:,\d{3})*(?:\.\d+)?(?!\w)")
FLIPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.GtE,
    ast.LtE: ast.Gt,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Lt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


@dataclass(frozen=True)
class Claim:
    """A claim and the check of it.

    Attributes:
        text: words of the prose.
        expression: Python that is true in the executed lesson.
    """

    text: str
    expression: str

    @property
    def numbers(self) -> list[str]:
        """The numbers as they are written in the text."""
        return [number.replace("\u2212", "-").replace(",", "") for number in NUMBER.findall(self.text)]


def claims_of(source: str) -> list[Claim]:
    """The claims of a Markdown cell, in order. ValueError if one has no expression."""
    if len(CLAIM.findall(source)) != source.count("<!-- claim:"):
        raise ValueError(f"a claim is written <!-- claim: words :: expression -->; one is not in:\n{source}")
    return [Claim(*(" ".join(part.split()) for part in found)) for found in CLAIM.findall(source)]


def without_claims(source: str) -> str:
    """A Markdown cell without its claims."""
    return CLAIM.sub("", source)


def code_of(claim: Claim, folder: str) -> str:
    """The code that checks a claim in the kernel of its lesson. `folder` holds the package `generate`."""
    return (
        f"__import__('sys').path.insert(0, {folder!r})\n"
        f"__import__('generate.claims', fromlist=['check']).check({claim.text!r}, {claim.expression!r}, globals())"
    )


def check(text: str, expression: str, names: dict[str, Any]) -> None:
    """AssertionError unless the claim holds, and fails with other numbers and with each comparison negated."""
    claim = Claim(text, expression)
    if not holds(claim, claim.numbers, names):
        raise AssertionError(f"not so: {text!r}. False: {expression}; {seen(claim, names)}")
    for what, false in falsified(claim):
        if any(holds(one, numbers, names) is not True for one, numbers in false):
            continue
        raise AssertionError(f"claims nothing: {text!r} holds as well with {what}: {expression}")


def holds(claim: Claim, numbers: list[str], names: dict[str, Any]) -> bool:
    """Whether a claim is true with these numbers."""
    own = {
        "said": lambda *values: said(numbers, values),
        "about": lambda *values, within=0.1: about(numbers, values, within),
        "quoted": [float(number) for number in numbers],
    }
    return bool(eval(claim.expression, {**names, **own}))


def said(numbers: list[str], values: tuple[Any, ...]) -> bool:
    """Whether each value rounds to its number as it is written. ValueError if their counts differ."""
    pairs = paired(numbers, values)
    return all(abs(value - float(number)) <= 0.5 * unit(number) * (1 + 1e-9) for number, value in pairs)


def about(numbers: list[str], values: tuple[Any, ...], within: float) -> bool:
    """Whether each value is near its number. ValueError if their counts differ."""
    return all(abs(value - float(number)) <= within * abs(float(number)) for number, value in paired(numbers, values))


def paired(numbers: list[str], values: tuple[Any, ...]) -> list[tuple[str, float]]:
    """Pairs of number and value, without those skipped by None."""
    if len(numbers) != len(values):
        raise ValueError(f"{len(values)} values for {len(numbers)} numbers, {numbers}; None passes over one")
    return [(number, float(value)) for number, value in zip(numbers, values, strict=True) if value is not None]


def unit(number: str) -> float:
    """One unit in the last decimal place of a number."""
    return 10.0 ** -len(number.partition(".")[2])


def falsified(claim: Claim) -> Iterator[tuple[str, list[tuple[Claim, list[str]]]]]:
    """Each change, and versions of the claim with it; of each group at least one version must be false.

    A number is moved by one unit in its last place, halved, doubled, and negated. A comparison is negated.
    """
    tree = ast.parse(claim.expression, mode="eval")
    comparisons = [node for node in ast.walk(tree) if isinstance(node, ast.Compare)]
    inner = {id(node) for outer in comparisons for node in ast.walk(outer) if node is not outer}
    comparisons = [node for node in comparisons if id(node) not in inner]  # a mask inside one is not a claim by itself
    looked, starred = looked_at(tree, len(claim.numbers))
    if not comparisons and not looked:
        raise ValueError(f"a fact is a comparison, so that it can be false; got {claim.expression!r}")
    groups = [[(claim, numbers) for numbers in other_numbers(claim.numbers, i)] for i in sorted(looked)]
    if starred:  # which numbers are skipped is known only when it runs
        groups = [[one for group in groups for one in group]]
    for group in groups:
        yield "other numbers", group
    for node in comparisons:
        for i, operator in enumerate(node.ops):
            node.ops[i] = FLIPPED[type(operator)]()
            yield "a comparison turned round", [(Claim(claim.text, ast.unparse(tree)), claim.numbers)]
            node.ops[i] = operator


def other_numbers(numbers: list[str], i: int) -> list[list[str]]:
    """The numbers of a claim with another one in one place."""
    number, value = numbers[i], float(numbers[i])
    others = (value + unit(number), value - unit(number), 2 * value, value / 2, -value)
    return [[*numbers[:i], written(other, number), *numbers[i + 1 :]] for other in others]


def looked_at(tree: ast.Expression, count: int) -> tuple[set[int], bool]:
    """Indices of the numbers that an expression looks at, not skipped by None; whether some may be skipped anyway."""
    found: set[int] = set()
    unsure = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("said", "about"):
            none = {i for i, a in enumerate(node.args) if isinstance(a, ast.Constant) and a.value is None}
            starred = any(isinstance(a, ast.Starred) for a in node.args)
            unsure |= starred
            found |= set(range(count)) - (set() if starred else none)
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "quoted":
            assert isinstance(node.slice, ast.Constant)
            found.add(int(node.slice.value))
    return found, unsure


def written(value: float, like: str) -> str:
    """A number with one more decimal place than another one; with none if both are whole."""
    places = len(like.partition(".")[2])
    return f"{value:.{places + 1}f}" if places or value != round(value) else f"{value:.0f}"


def seen(claim: Claim, names: dict[str, Any]) -> str:
    """The values that the expression looks at, for the error."""
    found = []
    for node in ast.walk(ast.parse(claim.expression, mode="eval")):
        calls = isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("said", "about")
        looks: list[ast.expr] = node.args if isinstance(node, ast.Call) and calls else []
        if isinstance(node, ast.Compare):
            looks = [node.left, *node.comparators]
        for one in looks:
            try:
                own = {"quoted": [float(number) for number in claim.numbers]}
                found.append(f"{ast.unparse(one)} = {eval(ast.unparse(one), {**names, **own})}")
            except (NameError, SyntaxError):  # a name of a comprehension around it, or a starred argument
                continue
    return "; ".join(found)
