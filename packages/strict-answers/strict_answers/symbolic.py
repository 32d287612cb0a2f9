r"""Compare two spans as mathematics with math-verify; workers only, since it may take forever or all memory.

math-verify's own time-outs use SIGALRM and are off; the owner of the worker enforces the deadline.
"""

import logging
import re
from cmath import isfinite
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from typing import Any

import math_verify  # type: ignore[import-untyped]
import sympy  # type: ignore[import-untyped]
from latex2sympy2_extended import NormalizationConfig  # type: ignore[import-untyped]
from math_verify import LatexExtractionConfig, parse
from sympy.core.function import AppliedUndef  # type: ignore[import-untyped]
from sympy.core.random import seed  # type: ignore[import-untyped]

from strict_answers.numerals import rounds_to
from strict_answers.process import Message

PLACES = 12
"math-verify rounds floats to this many places; none reach it, since the rules write decimals as fractions."
CLOSE = 1e-9
"Absolute and relative: values closer than this may be equal, and are compared to more places."
DIGITS = 130
"Places to which values must agree to be equal: more than the digits that an answer may have."
NO_VALUE = (TypeError, ValueError, OverflowError, ZeroDivisionError, AttributeError)
"Errors that sympy raises for a term whose value is not a number."
NEAR = sympy.Float(10, DIGITS) ** (10 - DIGITS)
TERMS = (sympy.Number, sympy.NumberSymbol, sympy.Symbol, sympy.Add, sympy.Mul, sympy.Pow, sympy.Function)
CONFIG = (
    LatexExtractionConfig(
        normalization_config=NormalizationConfig(
            basic_latex=True, units=False, malformed_operators=True, nits=True, boxed="none", equations=False
        )
    ),
)
"Unit handling is off, because it strips letters such as m from the end of a formula."
WARM = ((r"\frac{1}{2}", "0.5"), (r"(2,\sqrt{3}]", r"\{1,x\}"), (r"((x^2+\sin(2))) \cdot 1", r"\pi"), ("x<1", "y=2"))
"Spans and golds that make the parser build its tables and sympy import its parts before the first request."
IMAGINARY = re.compile(r"(?<![A-Za-z\\])i(?![A-Za-z])")
UNICODE = {"π": r"\pi ", "×": r"\times ", "·": r"\cdot ", "∞": r"\infty ", "≤": r"\leq ", "≥": r"\geq "}
UNICODE |= {"÷": "/", "²": "^{2}", "³": "^{3}"}
ROOT = re.compile(r"(?<![A-Za-z\\])sqrt ?(?:\(([^()]*)\)|([0-9]+))|√ ?(?:\(([^()]*)\)|([0-9]+|[a-z]))")
logging.getLogger("math_verify").setLevel(logging.CRITICAL)  # it logs whole answers, and that its time-outs are off


def load(argument: None, seconds: float) -> Callable[[Message], Message]:
    """The judge that a worker loads, warmed up, so that the first request takes no longer than the others."""
    for span, gold in WARM:
        compare(span, gold)
    for span, right in (("0.5", True), ("0.25", False)):
        if compare(span, r"\frac{1}{2}")[0] is not right:
            raise ValueError(f"{span} is {'not ' * right}1/2: math-verify is broken")

    def judge(request: Message) -> Message:
        correct, reason = compare_parts(request["members"], request["gold"])
        return {"correct": correct, "reason": reason}

    return judge


def compare(span: str, gold: str) -> tuple[bool, str]:
    """(equal, one short sentence). Both are spans without delimiters, stripped."""
    wanted = parse_latex(gold)
    if not wanted or sympy.nan in wanted or sympy.zoo in wanted:
        return False, "the gold answer is not mathematics and the texts differ"
    answer = parse_latex(span)
    if not answer:
        return False, "the answer cannot be read as mathematics"
    if all(differ(one, other) for one in wanted for other in answer):
        return False, "the values differ"
    if len(wanted) == len(answer) == 1 and same_constant(wanted[0], answer[0]):
        return True, "equal to 120 places"
    seed(0)  # sympy draws numbers to test its guesses: the same answer must get the same verdict
    equal = math_verify.verify(wanted, answer, timeout_seconds=None, raise_on_error=True, float_rounding=PLACES)
    return bool(equal), "equal by math-verify" if equal else "not equal by math-verify"


def compare_parts(members: list[list[list[str]]], gold: list[list[str]]) -> tuple[bool, str]:
    """Whether every member has the parts of the gold, in any order: with equal tags and pairwise equal pieces."""
    reason = "equal by math-verify"
    for member in members:
        left = list(gold)
        for part in member:
            for place, wanted in enumerate(left):
                equal, reason = equal_parts(part, wanted)
                if equal:
                    del left[place]
                    break
            else:
                return False, reason
    return True, reason


def equal_parts(part: list[str], wanted: list[str]) -> tuple[bool, str]:
    """Whether two parts are equal, piece by piece."""
    if part[0] == "~":
        values = [term for term in parse_latex(wanted[1]) if is_term(term) and not term.free_symbols]
        near = False
        with suppress(*NO_VALUE):  # a complex value rounds to no decimal
            near = bool(values) and rounds_to(Fraction(str(values[0].evalf(20))), part[1])
        return near, "rounded" if near else "an approximation of another value"
    if part[0] != wanted[0] or len(part) != len(wanted):
        return False, "another kind of object"
    if part[0] == "=":
        equal = same_equation(part[1], wanted[1])
        return equal, "the same equation" if equal else "another equation"
    reason = "the same text"
    for piece, gold in zip(part[1:], wanted[1:], strict=True):
        if piece != gold:
            equal, reason = compare(piece, gold)
            if not equal:
                return False, reason
    return True, reason


def same_equation(span: str, gold: str) -> bool:
    """Whether two left sides of equations with 0 on the right are the same up to a constant factor that is not 0.

    For polynomials that factor is a quotient of coefficients; for other terms only 1 and -1 are tried.
    """
    if span == gold:
        return True
    terms = [term for side in (gold, span) for term in list(filter(is_term, parse_latex(side)))[:1]]
    if len(terms) < 2 or not all(term.free_symbols for term in terms):
        return False
    names = sorted(terms[0].free_symbols, key=str)
    if all(term.is_polynomial(*names) for term in terms) and names == sorted(terms[1].free_symbols, key=str):
        one, other = (sympy.Poly(term, *names) for term in terms)
        factor = one.LC() / other.LC()
        return bool((one - other * factor).is_zero)
    return any(compare(f"{sign}({span})", gold)[0] for sign in ("", "-"))


def same_constant(wanted: Any, answer: Any) -> bool:
    """Whether two irrational constants that agree to 120 places are the same; simplifying proves it for few of them.

    Two answers of at most a few hundred characters do not come that close by chance.
    """
    if not (is_term(wanted) and is_term(answer)) or wanted.free_symbols or answer.free_symbols:
        return False
    with suppress(*NO_VALUE):
        irrational = wanted.is_irrational or answer.is_irrational
        return bool(irrational) and all(isfinite(complex_value(term.evalf(15))) for term in (wanted, answer))
    return False


def differ(wanted: Any, answer: Any) -> bool:
    """Whether two readings differ in kind, or in value at one point: then nothing needs to be simplified.

    math-verify takes 1.4142135623730950488 for the square root of 2, so values that agree in their first places are
    compared to more. False if they agree there too, or have no value: math-verify decides. It is never asked whether a
    finite number equals an infinite one, which its simplifications sometimes get wrong.
    """
    if isinstance(wanted, sympy.Symbol) or isinstance(answer, sympy.Symbol) or not is_term(answer):
        return False  # math-verify compares a symbol by its name
    if isinstance(wanted, sympy.Set | sympy.Tuple):  # math-verify takes a set of one for its element
        return not isinstance(wanted, sympy.FiniteSet | sympy.Tuple) or len(wanted) != 1
    if not is_term(wanted):
        return False
    place = point(wanted, answer)
    with suppress(*NO_VALUE):
        one, other = (complex_value(term.evalf(15, subs=place)) for term in (wanted, answer))
        if not (isfinite(one) and isfinite(other)):
            return isfinite(one) != isfinite(other)
        if abs(one - other) > CLOSE * (1 + max(abs(one), abs(other))):
            return True
        exact, far = (term.evalf(DIGITS, subs=place) for term in (wanted, answer))
        size = 1 + sum(abs(part) for part in exact.as_real_imag())
        return any(bool(abs(part) > NEAR * size) for part in (exact - far).as_real_imag())
    return False


def point(wanted: Any, answer: Any) -> dict[Any, Any]:
    """A value for each unknown of two readings: unusual numbers, near which no answer has a pole."""
    names = sorted(wanted.free_symbols | answer.free_symbols, key=str)
    return {name: sympy.Rational(314159 * k + 265358, 979323) for k, name in enumerate(names, 1)}


def complex_value(number: Any) -> complex:
    """A sympy number as a Python complex; TypeError if it is not a number."""
    return complex("inf") if number in (sympy.nan, sympy.zoo) else complex(number)


def is_term(part: Any) -> bool:
    """Whether a reading consists only of numbers, symbols, sums, products, powers and named functions."""
    return (
        (isinstance(part, TERMS) or part in (sympy.I, sympy.zoo))
        and not isinstance(part, AppliedUndef)
        and all(is_term(inner) for inner in part.args)
    )


@lru_cache(maxsize=1000)  # a group of responses shares its gold
def parse_latex(span: str) -> list[Any]:
    """The expressions that math-verify reads from the whole span as LaTeX; empty if there are none.

    Never as plain text, which takes the first number it finds, 25 from 25√2.
    """
    text = "".join(UNICODE.get(char, char) for char in ROOT.sub(root, IMAGINARY.sub(" i ", span)))
    found = parse(f"${text}$", CONFIG, parsing_timeout=None, fallback_mode="no_fallback", raise_on_error=False)
    if " i " not in text:
        return list(found)
    return [
        part.subs({n: sympy.I for n in part.free_symbols if n.name == "i"}) if is_term(part) else part for part in found
    ]


def root(found: re.Match[str]) -> str:
    r"""sqrt(x), √(x) and √2 as \sqrt{...}."""
    return rf"\sqrt{{{found[1] or found[2] or found[3] or found[4]}}}"
