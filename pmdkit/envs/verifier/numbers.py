r"""The strict path: is a span of text a number, written in one of the usual ways? Exact, ASCII digits only, no sympy.

`strip_decoration` comes first, `parse_number` reads what is left. Words around a number are in conventions.py.
"""

import re
from fractions import Fraction

from pmdkit.envs.verifier.extract import closing

PLAIN = re.compile(r"[+-]?[0-9]+")
GROUPED = re.compile(r"([0-9]{1,3})((?:,[0-9]{3})+|(?:\{,\}[0-9]{3})+|(?: [0-9]{3})+)(\.[0-9]*)?")
DECIMAL = re.compile(r"[0-9]*\.?[0-9]*")
RATIO = re.compile(r"([+-]?[0-9]+) ?(?:/|÷) ?([+-]?[0-9]+)")
FRAC = re.compile(r"([+-]?) ?\\[dtc]?frac ?\{ ?([+-]?[0-9]+) ?\} ?\{ ?([+-]?[0-9]+) ?\}")
BOLD = re.compile(r"(?<![0-9A-Za-z)}])\*\*([^*]+)\*\*(?![0-9A-Za-z({])")
SPACE = re.compile(r"(?<!\\)\\([!,; ])")
TIE = re.compile(r"(?<=[0-9A-Za-z}$])~(?=[0-9A-Za-z{\\])")
"A blank of LaTeX between two words; elsewhere a tilde says about."
LONGEST = 1000
"Characters of a span that are looked at; a longer one is no integer that anybody asks for."
WRAPPERS = ("\\boxed", "\\fbox", "\\text", "\\textbf", "\\mathbf", "\\mathrm", "\\bm", "\\boldsymbol", "\\mathit")
EDGES = " \t\r\n*_`\"'“”"
PAIRS = (
    ("\\(", "\\)"),
    ("\\[", "\\]"),
    ("$$", "$$"),
    ("$", "$"),
    ("{", "}"),
    ("\\left(", "\\right)"),
    ("(", ")"),
    ("[", "]"),
)
CURRENCY = ("\\$", "$", "€", "£", "¥", "\\pounds", "\\euro")
MINUS = str.maketrans({"−": "-", "﹣": "-", "–": "-"})


def canonical_integer(digits: str) -> str:
    """An integer as text without leading zeros and plus; "-0" is "0". Text, so that no length of digits is slow."""
    negative = digits[0] == "-"
    digits = digits.lstrip("+-").lstrip("0") or "0"
    return "-" + digits if negative and digits != "0" else digits


def strip_decoration(span: str) -> str:
    r"""Take off what says nothing: $ and \( \), \boxed{} and \text{}, markdown, quotes, a full stop at the end."""
    span = BOLD.sub(r"\1", span.translate(MINUS))
    for _ in range(12):  # more layers than anybody writes; deeper ones are left to limits.py
        before = span
        span = span.strip(EDGES).rstrip(".,; \t\n\\")
        for opener, closer in PAIRS:
            if len(span) > len(opener) + len(closer) and span.startswith(opener) and span.endswith(closer):
                inner = span[len(opener) : -len(closer)]
                if wraps(opener, inner):
                    span = inner
                    break
        for name in WRAPPERS:
            if span.startswith(name + "{") and closing(span, len(name)) == len(span) - 1:
                span = span[len(name) + 1 : -1]
        if span == before:
            break
    span = span.replace(",\\! ", ",").replace(",\\!", ",")
    span = TIE.sub(" ", span)
    span = SPACE.sub(lambda found: "" if found[1] == "!" else " ", span)
    return " ".join(span.split())


def wraps(opener: str, inner: str) -> bool:
    """Whether the brackets at both ends belong together, and mean nothing: (1, 2) and [0, 1) keep theirs."""
    if opener in ("(", "[", "\\left("):
        return PLAIN.fullmatch(inner.strip()) is not None or FRAC.fullmatch(inner.strip()) is not None
    if opener == "{":
        return closing("{" + inner + "}", 0) == len(inner) + 1
    return opener not in inner


def parse_number(span: str) -> str | Fraction | None:
    """A stripped span as an integer (canonical text) or another rational; None if it is no plain number."""
    if PLAIN.fullmatch(span):
        return canonical_integer(span)
    ratio = RATIO.fullmatch(span) or FRAC.fullmatch(span)
    if ratio:
        top, bottom = ratio.groups()[-2:]
        if len(top) > 100 or len(bottom) > 100 or not int(bottom):
            return None
        value = Fraction(int(top), int(bottom))
        return canonical_fraction(-value if ratio.re is FRAC and ratio[1] == "-" else value)
    sign, rest = "", span
    if rest[:1] in ("+", "-"):
        sign, rest = rest[0], rest[1:].lstrip()
    for symbol in CURRENCY:
        if rest.startswith(symbol):
            rest = rest[len(symbol) :].lstrip()
            break
    if not sign and rest[:1] == "-":
        sign, rest = "-", rest[1:].lstrip()
    grouped = GROUPED.fullmatch(rest)
    if grouped:
        head, groups, decimals = grouped.groups()
        rest = head + re.sub(r"[^0-9]", "", groups) + (decimals or "")
    if not DECIMAL.fullmatch(rest) or not rest.strip("."):
        return None
    before, _, after = rest.partition(".")
    if not after.strip("0"):
        return canonical_integer(sign + (before or "0"))
    if len(rest) > 100:
        return None
    return canonical_fraction(Fraction(sign + (before or "0") + "." + after))


def canonical_fraction(value: Fraction) -> str | Fraction:
    """An integer as its canonical text."""
    return str(value.numerator) if value.denominator == 1 else value
