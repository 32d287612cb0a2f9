"""Rewrite a formula for the parser: fractions in place of decimals that it would round, radians in place of degrees."""

import math
import re
from fractions import Fraction

from strict_answers.numerals import DOTTED, MIXED, PERIOD, canonical_fraction, mixed_value, period_value

EXACT_DECIMAL = re.compile(
    r"(?<![0-9.,])([0-9]{0,60})\.([0-9]{1,60})(?![0-9.])|(?<![0-9.,])([0-9]{1,60})\.(?=[ )}\]]|$)"
)
SHORT_TOP = re.compile(r"\\(?:[dtc]?(frac)|[dt]?(binom)) ?([0-9A-Za-z])")
SHORT_BOTTOM = re.compile(r"\\(?:[dtc]?(frac)|[dt]?(binom)) ?(\{[^{}]*\}) ?([0-9A-Za-z])")
BINOMIAL = re.compile(r"\\[td]?binom ?\{([^{}]*[A-Za-z][^{}]*)\} ?\{ ?([1-4]) ?\}")
PRODUCT_OF_CALLS = re.compile(r"\\(ln|log|lg|sin|cos|tan) ?([0-9]+|[a-z]|\\pi)(?= ?(?:\\cdot|\\times|\*))")
"The parser takes what follows the sign into the function: \\ln 2 \\cdot 4 is not \\ln 8."
LOGARITHM = re.compile(
    r"\\log ?_ ?(?:\{ ?([0-9A-Za-z]+) ?\}|([0-9A-Za-z])) ?"
    r"(?:\{ ?([0-9]+) ?\}|\( ?([0-9]+) ?\)|([0-9]+)(?![0-9.]))(?! ?\^)"
)
CHOSEN = re.compile(
    r"(?:\{ ?\} ?)?(?:[\^_] ?)?(?:\{([0-9]{1,3})\}|(?<![0-9])([0-9]{1,3}))"
    r" ?C ?_? ?(?:\{([0-9]{1,3})\}|([0-9]{1,3})(?![0-9]))"
    r"|(?<![A-Za-z])C ?\( ?([0-9]{1,3}) ?, ?([0-9]{1,3}) ?\)"
    r"|(?<![A-Za-z])C ?_ ?(?:\{([0-9]{1,3})\}|([0-9])) ?\^ ?(?:\{([0-9]{1,3})\}|([0-9]))"
)
"Binomial coefficients as {}_{10}C_3, 10C3, C(10, 3) and C_{10}^3."
SIGN = (
    r"(?:(?<=[0-9])\^ ?\{? ?o ?\}?(?![A-Za-z])|\^ ?\{ ?\\circ ?\}|(?:\^ ?|(?<=[0-9])(?<!\^[0-9]))\\circ(?![A-Za-z])"
    r"|\\degrees?(?![A-Za-z])|°)"
)
DEGREES = re.compile(
    rf"(?<=[0-9A-Za-z)}}\]]) ?{SIGN}(?: ?[CF](?![A-Za-z]))?"
    r"(?! ?[0-9{√π]|[A-Za-z'_^(]| ?\\(?:[dtc]?frac|sqrt|pi|circ|degree)(?![A-Za-z]))"
)
"A degree sign behind a value. One in the middle of a value, as in 6°0, is no unit, and stays to be refused."
DEGREE_SIGN = re.compile(SIGN)
ANY_DEGREES = re.compile(rf"{SIGN}|(?<![A-Za-z])degrees?(?![A-Za-z])")
ANGLE = re.compile(rf"([0-9]+(?:\.[0-9]+)?) ?(?:{SIGN}| ?degrees?(?![A-Za-z]))")
TRIGONOMETRIC = re.compile(r"(?<![A-Za-z])(?:a(?:rc)?)?(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
BARE = re.compile(r"(?<![A-Za-z\\{])(arc(?:sin|cos|tan)|sin|cos|tan|cot|sec|csc|ln|log|pi)(?![A-Za-z{])")
"Functions typed without a backslash."
PRODUCT = re.compile(r"(?<![0-9A-Za-z_^.,{])([0-9]+) ?(?=\(|\\frac)")
"A number before a bracket or a fraction: the parser takes 1(1/2) for a mixed number."


def radians(span: str) -> str:
    r"""Convert degrees to radians if there is a trigonometric function; otherwise degree signs are units and dropped.

    \sin 30 has no degree sign and stays as it is: the function takes radians.
    """
    if TRIGONOMETRIC.search(span):
        return ANGLE.sub(lambda found: in_radians(Fraction(found[1])), span)
    return DEGREES.sub("", span)


def in_radians(degrees: Fraction) -> str:
    """An angle in LaTeX, as a share of pi."""
    share = degrees / 180
    return rf"(\frac{{{share.numerator}\pi}}{{{share.denominator}}})"


def exact(span: str) -> str:
    """A formula rewritten for the parser, which would round decimals and drop periods: all become fractions."""
    span = BARE.sub(r"\\\1 ", span.replace("**", "^"))
    span = BINOMIAL.sub(expanded, PRODUCT_OF_CALLS.sub(r"\\\1(\2)", span))
    span = re.sub(r"(!(?=[0-9])|\\pi ?(?=\()|[0-9]\) ?(?=\([0-9]))", r"\1 \\cdot ", span)
    if "\\log" in span:
        span = re.sub(r"\\log ?_ ?(?:e(?![A-Za-z])|\{ ?e ?\})", r"\\ln ", span)
        span = LOGARITHM.sub(
            lambda found: rf"\log_{{{found[1] or found[2]}}}({found[3] or found[4] or found[5]})", span
        )
    span = MIXED.sub(lambda found: as_fraction(mixed_value(found), found), span)
    if "." not in span:
        return PRODUCT.sub(r"\1\\cdot ", span)
    span = PERIOD.sub(lambda found: as_fraction(period_value(found), found), span)
    span = DOTTED.sub(lambda found: as_fraction(period_value(found), found), span)
    span = PRODUCT.sub(r"\1\\cdot ", span)
    return EXACT_DECIMAL.sub(lambda found: as_fraction(Fraction(found.group().rstrip(".")), found), span)


def binomials(span: str) -> str:
    r"""Binomial coefficients in LaTeX: 10C3 and C(10, 3) as \binom{10}{3}."""
    return CHOSEN.sub(lambda found: "\\binom{" + "}{".join(filter(None, found.groups())) + "}", span)


def expanded(found: re.Match[str]) -> str:
    r"""The binomial coefficient \binom{x}{k} of a formula x and a small k as a polynomial: x(x-1)...(x-k+1)/k!."""
    top, size = found[1].strip(), int(found[2])
    factors = "".join(f"({top}-{step})" for step in range(size))
    return rf"\frac{{{factors}}}{{{math.factorial(size)}}}"


def written(value: str | Fraction) -> str:
    """A number as it is passed to the parser."""
    if isinstance(value, str):
        return value
    return rf"{'-' * (value < 0)}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def as_fraction(value: Fraction | None, found: re.Match[str]) -> str:
    """A value in LaTeX, in brackets so that nothing next to it is glued to a part of it; for None the matched text."""
    if value is None:
        return found.group()
    return f"({written(canonical_fraction(value))})"


def braced(span: str) -> str:
    r"""Write \frac12 as \frac{1}{2}, so that no adjacent digits mean two numbers."""
    return SHORT_BOTTOM.sub(r"\\\1\2\3{\4}", SHORT_TOP.sub(r"\\\1\2{\3}", span))
