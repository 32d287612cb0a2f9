r"""Where the answer of a response stands, and whether it is a number: exact, ASCII digits only, no sympy.

An answer stands after the last `Answer:`, or in the last `\boxed{}`. Source of the marker: the prompt and reward of
DAPO (arXiv:2503.14476), `Answer\s*:` in any case, last one wins.
"""

import re
from fractions import Fraction

MARKER = re.compile(r"(?<![A-Za-z])answer[ \t]*[*_}`]{0,4}[ \t]*:[ \t]*[*_}`]{0,4}", re.ASCII | re.IGNORECASE)
"The word in any case, markdown or the end of \\text{} around the colon, also inside a line (Final Answer: 34)."
TAILS = (64, 400)
"Characters searched first; nearly every answer stands there, and a long response costs no more than a short one."
SEARCHED = 200_000
"Characters at the end in which a marker is looked for: twice the longest response, and milliseconds at any length."
BOX = 20_000
"Characters in which a box must close; what is longer is no answer."
OPENERS = {"\\[": "\\]", "$$": "$$", "\\(": "\\)"}
BOXES = ("\\boxed", "\\fbox")


def answer_line(response: str) -> str | None:
    """What follows the last marker, to the end of its line; None without a marker or with nothing behind it.

    An empty rest of the line passes on to the next line with text. Mathematics that opens there (`\\[`, `$$`) is taken
    to where it closes. Lines after the answer are ignored, whatever they say, unless they hold a marker themselves.
    """
    response = response[-SEARCHED:]
    last = None
    for start in (*(len(response) - tail for tail in TAILS if tail < len(response)), 0):
        for found in MARKER.finditer(response, start):
            last = found
        if last is not None:
            break
    if last is None:
        return None
    rest = response[last.end() :].lstrip(" \t\r\n*_`}")
    closer = OPENERS.get(rest[:2])
    if closer is not None:
        end = rest.find(closer, 2)
        if end >= 0 and rest[2:end].strip():
            line_end = rest.find("\n", end)
            return rest[: line_end if line_end >= 0 else len(rest)].strip()
    end = rest.find("\n")
    return (rest if end < 0 else rest[:end]).strip() or None


def last_box(response: str) -> str | None:
    r"""Inside of the last \boxed{} or \fbox{} with balanced braces; `\boxed 7` gives 7; None if there is none.

    A last box that never closes, or not soon, is no answer, even where an earlier one closes: the response was cut off
    or broken.
    """
    start = max(response.rfind(name) for name in BOXES)
    if start < 0:
        return None
    rest = response[start : start + BOX]
    rest = rest[len("\\boxed") if rest.startswith("\\boxed") else len("\\fbox") :].lstrip(" ")
    if not rest.startswith("{"):
        word = re.match(r"[^\s$\\]+", rest)
        return word.group() if word else None
    end = closing(rest, 0)
    return None if end is None else rest[1:end].strip() or None


def closing(text: str, start: int) -> int | None:
    """Where the brace that opens at `start` closes; escaped braces do not count. None if it never does."""
    depth = 0
    for found in re.compile(r"\\.|[{}]", re.DOTALL).finditer(text, start):
        if found.group() == "{":
            depth += 1
        elif found.group() == "}":
            depth -= 1
            if depth == 0:
                return found.start()
    return None


# The strict path: `strip_decoration` comes first, `parse_number` reads what is left. Words around a number are in
# conventions.py.

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
