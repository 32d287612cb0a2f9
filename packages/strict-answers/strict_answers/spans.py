r"""An answer as text: find it, strip decoration without meaning, and read plain numbers exactly.

It follows the last `Answer:` or is in the last `\boxed{}`; dollars, boxes and markdown are stripped. `parse_number`
reads a span exactly; `exact` rewrites the decimals, repeating decimals and mixed numbers inside a formula as fractions,
so that no parser rounds them, and `radians` does so for degrees.
"""

import re
from fractions import Fraction

# An answer follows the last `Answer:`, or is in the last `\boxed{}`. Source of the marker: the prompt and reward of
# DAPO (arXiv:2503.14476), `Answer\s*:` in any case, last one wins.
MARKER = re.compile(r"(?<![A-Za-z])answer[ \t]*[*_}`]{0,4}[ \t]*:[ \t]*[*_}`]{0,4}", re.ASCII | re.IGNORECASE)
"The word in any case, with markdown or the end of \\text{} around the colon, even within a line (Final Answer: 34)."
TAILS = (64, 400)
"Characters at the end that are searched first: nearly every answer is there, so long responses cost no more."
SEARCHED = 200_000
"Characters at the end that are searched for a marker: twice the longest response, and milliseconds at any length."
BOX = 20_000
"Characters within which a box must close; anything longer is not an answer."
OPENERS = {"\\[": "\\]", "$$": "$$", "\\(": "\\)"}
BOXES = ("\\boxed", "\\fbox")
BOLD = re.compile(r"(?<![0-9A-Za-z)}])\*\*([^*]+)\*\*(?![0-9A-Za-z({])")
SPACE = re.compile(r"(?<!\\)\\([!,;: ]|q?quad(?![A-Za-z]))")
TIE = re.compile(r"(?<=[0-9A-Za-z}${])~(?=[0-9A-Za-z{\\])")
"A LaTeX space between two words; elsewhere a tilde means `about`."
TEXT = re.compile(
    r"\\(?:text|textbf|textit|textrm|textnormal|mathrm|mathbf|mathit|operatorname|mbox|rm)\s*\{([^{}]*)\}"
)
WRAPPERS = (
    *("\\boxed", "\\fbox", "\\text", "\\textbf", "\\textit", "\\mathbf", "\\mathrm", "\\bm", "\\boldsymbol"),
    *("\\mathit", "\\displaystyle"),
)
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
MINUS = str.maketrans({"−": "-", "﹣": "-", "–": "-"})
TYPED = str.maketrans(
    {"½": " 1/2", "⅓": " 1/3", "⅔": " 2/3", "¼": " 1/4", "¾": " 3/4", "⅕": " 1/5", "⅙": " 1/6", "⅛": " 1/8"}
    | {char: f"_{digit}" for digit, char in enumerate("₀₁₂₃₄₅₆₇₈₉")}
)
"Fractions and subscripts typed as one character."
DELIMITERS = re.compile(r"\\?\$|\\[()\[\]]|[€£¥₹¢]|\\(?:pounds|euro)(?![A-Za-z])")
ESCAPED = re.compile(r"\\\\(?=[A-Za-z])")
"A backslash that was escaped once too often; in a matrix it ends a row."
SIZES = re.compile(r"\\(?:left|right|[bB]igg?[lr]?|displaystyle|limits)(?![A-Za-z]) ?\.?")


def answer_line(response: str) -> str | None:
    """What follows the last marker, to the end of its line; None without a marker or with nothing after it.

    If the rest of the line is empty, the next line with text is used. Mathematics that opens there (`\\[`, `$$`) is
    read to where it closes. Lines after the answer are ignored, whatever they say, unless they contain a marker.
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
    r"""The inside of the last \boxed{} or \fbox{} with balanced braces; `\boxed 7` gives 7; None if there is none.

    If the last box never closes, or not soon, there is no answer, even if an earlier one closes: the response was cut
    off or broken.
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


def strip_decoration(span: str) -> str:
    r"""Strip what has no meaning: $ and \( \), \boxed{} and \text{}, markdown, quotes, a full stop at the end."""
    span = BOLD.sub(r"\1", span.translate(MINUS))
    for _ in range(12):  # more layers than anyone writes; the limits of shapes.py catch deeper ones
        before = span
        span = span.strip(EDGES).rstrip(".,; \t\n\\") if not span.endswith("...") else span.strip(EDGES)
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
    """Whether the brackets at both ends belong together and have no meaning: (1, 2) and [0, 1) keep theirs."""
    if opener in ("(", "[", "\\left("):
        return PLAIN.fullmatch(inner.strip()) is not None or FRAC.fullmatch(inner.strip()) is not None
    if opener == "{":
        return closing("{" + inner + "}", 0) == len(inner) + 1
    return opener not in inner


def open_text(span: str) -> str:
    r"""Unwrap \text{...} and drop bracket sizes; what remains is read as words or as mathematics."""
    span = span.translate(TYPED)
    if "\\begin" not in span:
        span = ESCAPED.sub(r"\\", span)
    return " ".join(SIZES.sub("", TEXT.sub(r" \1 ", span)).split())


def without_dollars(span: str) -> str:
    r"""Replace dollars, \( \) and currency signs by blanks, so that nothing is glued to what was outside."""
    return " ".join(DELIMITERS.sub(" ", span).split())


# Numbers as models write them: integers, decimals, ratios, mixed numbers, repeating decimals, bases.

PLAIN = re.compile(r"[+-]?[0-9]+")
GROUPED = re.compile(r"([1-9][0-9]{0,2})((?:,[0-9]{3})+|(?:\{,\}[0-9]{3})+|(?: [0-9]{3})+)(\.[0-9]*)?")
"Thousands: the first group never begins with 0, so that 0,034 is neither 34 nor 0.034."
DECIMAL = re.compile(r"[0-9]*\.?[0-9]*")
RATIO = re.compile(r"([+-]?[0-9]+) ?(?:/|÷) ?([+-]?[0-9]+)")
FRAC = re.compile(r"([+-]?) ?\\[dtc]?frac ?(?:\{ ?([+-]?[0-9]+) ?\}|([0-9])) ?(?:\{ ?([+-]?[0-9]+) ?\}|([0-9]))")
MIXED = re.compile(
    r"(?<![0-9A-Za-z.,^_})])([0-9]{1,20}) ?(?:\\[dtc]?frac ?(?:\{ ?([0-9]{1,20}) ?\}|([0-9])) ?(?:\{ ?([0-9]{1,20}) ?\}"
    r"|([0-9]))|(?<= )([0-9]{1,20})/([0-9]{1,20}))(?![0-9./])"
)
PERIOD = re.compile(
    r"(?<![0-9.,])([0-9]{0,30})\.([0-9]{0,30})"
    r"(?:\\(?:overline|bar|dot) ?(?:\{([0-9]{1,30})\}|([0-9]))|\(([0-9]{1,30})\))(?![0-9.])"
)
"0.58\\overline{3} and 0.58(3)."
DOTTED = re.compile(
    r"(?<![0-9.,])([0-9]{0,30})\.([0-9]{0,30}?)(?:([1-8])\3\3+|([0-9]{2,15})\4+) ?"
    r"(?:\.\.\.|…|\\[lc]?dots)(?![0-9A-Za-z.])"
)
"0.333... and 0.1212...: the period is written out. 34.000... and 33.999... are nobody's exact answer."
EXACT_DECIMAL = re.compile(r"(?<![0-9.,])([0-9]{0,60})\.([0-9]{1,60})(?![0-9.])|(?<![0-9.,])([0-9]{1,60})\.(?![0-9.])")
SHORT_FRAC = re.compile(r"\\[dtc]?frac ?(?:([0-9A-Za-z])|(\{[^{}]*\})) ?(?:([0-9A-Za-z])|(\{))")
SIGN = r"(?:\^ ?(?:\{ ?\\circ ?\}|\\circ(?![A-Za-z]))|\\degrees?(?![A-Za-z])|\\circ(?![A-Za-z])|°)"
DEGREES = re.compile(SIGN + r"(?:[CF](?![A-Za-z]))?")
ANGLE = re.compile(rf"([0-9]+(?:\.[0-9]+)?) ?(?:{SIGN}| ?degrees?(?![A-Za-z]))")
TRIGONOMETRIC = re.compile(r"(?<![A-Za-z])(?:a(?:rc)?)?(?:sin|cos|tan|cot|sec|csc)(?![A-Za-z])")
JUXTAPOSED = re.compile(r"[0-9.}] [0-9.]")
"Two numbers side by side: neither a product nor one number."
BARE = re.compile(r"(?<![A-Za-z\\{])(arc(?:sin|cos|tan)|sin|cos|tan|cot|sec|csc|ln|log|pi)(?![A-Za-z{])")
"Functions typed without a backslash."
PRODUCT = re.compile(r"(?<![0-9A-Za-z_^.,{])([0-9]+) ?(?=\(|\\frac)")
"A number before a bracket or a fraction: the parser takes 1(1/2) for a mixed number."
CURRENCY = ("\\$", "$", "€", "£", "¥", "₹", "\\pounds", "\\euro")
BASES = {"binary": 2, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "octal": 8}
BASES |= {"nine": 9, "ten": 10, "decimal": 10, "eleven": 11, "twelve": 12, "sixteen": 16, "hexadecimal": 16}
BASE = re.compile(
    r"([+-]?) ?\(?([0-9A-Fa-f]{1,60})\)? ?"
    r"(?:_ ?(?:\{ ?)?\(?(?P<below>[0-9]{1,2}|[a-z]+)\)? ?\}?|\(?(?:in )?base[ -](?P<word>[0-9]{1,2}|[a-z]+)\)?)"
)
LONGEST = 100
"Maximum digits of a number that is turned into a fraction."


def canonical_integer(digits: str) -> str:
    """An integer as text without leading zeros and plus; "-0" is "0". Text, so that even long ones are not slow."""
    negative = digits[0] == "-"
    digits = digits.lstrip("+-").lstrip("0") or "0"
    return "-" + digits if negative and digits != "0" else digits


def canonical_fraction(value: Fraction) -> str | Fraction:
    """The canonical text of an integer; any other fraction unchanged."""
    return str(value.numerator) if value.denominator == 1 else value


def parse_number(span: str) -> str | Fraction | None:
    """A stripped span as an integer (canonical text) or another rational; None if it is not a plain number."""
    if PLAIN.fullmatch(span):
        return canonical_integer(span)
    ratio = RATIO.fullmatch(span) or FRAC.fullmatch(span)
    if ratio:
        found = [group for group in ratio.groups() if group is not None]
        top, bottom = found[-2:]
        if len(top) > LONGEST or len(bottom) > LONGEST or not int(bottom):
            return None
        value = Fraction(int(top), int(bottom))
        return canonical_fraction(-value if found[:-2] == ["-"] else value)
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
        other = read_mixed(rest) or read_period(rest)
        return None if other is None else canonical_fraction(-other if sign == "-" else other)
    before, _, after = rest.partition(".")
    if not after.strip("0"):
        return canonical_integer(sign + (before or "0"))
    if len(rest) > LONGEST:
        return None
    return canonical_fraction(Fraction(sign + (before or "0") + "." + after))


def read_mixed(span: str) -> Fraction | None:
    r"""1 1/2 and 1\frac{1}{2} as 3/2; None if the fraction is not a proper one."""
    found = MIXED.fullmatch(span)
    return None if found is None else mixed_value(found)


def mixed_value(found: re.Match[str]) -> Fraction | None:
    """The value of a match of MIXED."""
    whole, top, bottom = (int(group) for group in found.groups() if group is not None)
    return Fraction(whole * bottom + top, bottom) if 0 < top < bottom else None


def read_period(span: str) -> Fraction | None:
    """A repeating decimal, exactly."""
    found = PERIOD.fullmatch(span) or DOTTED.fullmatch(span)
    return None if found is None else period_value(found)


def period_value(found: re.Match[str]) -> Fraction | None:
    """The value of a match of PERIOD or DOTTED; None for 33.999... and 34.000..., which dress up a rounded number."""
    whole, before, *periods = found.groups()
    period = next(group for group in periods if group)
    if set(period) in ({"0"}, {"9"}):
        return None
    scale = 10 ** len(before)
    head = Fraction(int((whole or "0") + before), scale)
    return head + Fraction(int(period), (10 ** len(period) - 1) * scale)


def read_base(span: str) -> tuple[str, int] | None:
    """(digits, base) of 42_5 and `42 base 5`; None if the span is not such a number."""
    found = BASE.fullmatch(span)
    if found is None:
        return None
    name = found["below"] or found["word"]
    base = int(name) if name.isdigit() else BASES.get(name)
    digits = found[2].upper().lstrip("0") or "0"
    if base is None or not 2 <= base <= 36 or max(int(digit, 36) for digit in digits) >= base:
        return None
    return ("-" if found[1] == "-" else "") + digits, base


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
    span = MIXED.sub(lambda found: as_fraction(mixed_value(found), found), span)
    span = PERIOD.sub(lambda found: as_fraction(period_value(found), found), span)
    span = DOTTED.sub(lambda found: as_fraction(period_value(found), found), span)
    span = PRODUCT.sub(r"\1\\cdot ", span)
    return EXACT_DECIMAL.sub(lambda found: as_fraction(Fraction(found.group().rstrip(".")), found), span)


def written(value: str | Fraction) -> str:
    """A number as it is passed to the parser."""
    if isinstance(value, str):
        return value
    return rf"{'-' * (value < 0)}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def as_fraction(value: Fraction | None, found: re.Match[str]) -> str:
    """A value in LaTeX, in brackets so that nothing next to it is glued to a part of it; for None the matched text."""
    if value is None:
        return found.group()
    if value.denominator == 1:
        return f"({value.numerator})"
    return rf"(\frac{{{value.numerator}}}{{{value.denominator}}})"


def braced(span: str) -> str:
    r"""Write \frac12 as \frac{1}{2}, so that no adjacent digits mean two numbers."""
    for _ in range(8):
        before = span
        span = SHORT_FRAC.sub(
            lambda m: (
                rf"\frac{{{m[1]}}}" + (f"{{{m[3]}}}" if m[3] else "{")
                if m[1]
                else rf"\frac{m[2]}" + (f"{{{m[3]}}}" if m[3] else "{")
            ),
            span,
        )
        if span == before:
            break
    return span
