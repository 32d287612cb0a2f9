r"""A gold answer, read once: bare, in $ or \boxed{}, as name = value, with a unit, in words."""

import re
from functools import lru_cache
from typing import NamedTuple

from strict_answers import structure
from strict_answers.extraction import BOXES, last_box
from strict_answers.normalization import TEXT, open_text, strip_decoration, without_dollars
from strict_answers.numerals import in_digits, parse_number
from strict_answers.rewriting import braced, exact, radians, written
from strict_answers.structure import Part
from strict_answers.vocabulary import GREEK, MATHEMATICS, unknowns

LONGEST = 1000
"Maximum characters of a span; a longer one is not an answer that anyone asks for."
PERCENT = re.compile(r"\\?%|(?<![A-Za-z])(?:per ?cent|percentage|pct)(?![A-Za-z])", re.IGNORECASE)
OPENER = re.compile(
    r"(?<![\\A-Za-z])(?:(?:so|thus|therefore|hence|then) ?,?"
    r"|(?:finally|overall|altogether|in (?:total|all|conclusion)) ?,) ",
    re.IGNORECASE,
)
INTRODUCTION = re.compile(
    r"(?:so |thus |then |therefore |hence )?(?:we (?:have|get|find|obtain|conclude)|i get|this gives|it follows|it['’]s"
    r"|the remainder when [^,;]{1,80} divided by [0-9]+ is"
    r"|the (?:final |correct )?(?:answer|value|solution|root)s? (?:is|are)|the (?:number|integer)(?= [0-9-]))"
    r"(?: that)? ?:? ",
    re.IGNORECASE,
)
"An introduction; what follows is judged on its own."
MEANINGLESS_BLANK = re.compile(r"(?<![0-9,]) +| +(?![0-9])")
"A blank that is neither between two digits nor after a comma of a list of numbers."
HENCE = re.compile(r"(?:\\(?:therefore|implies|(?:[Ll]ong)?[Rr]ightarrow|to)(?![A-Za-z])|[∴⇒→]) ?")
"A sign for `so` before a value."
SIGNED = re.compile(r"(minus|negative) (?=[0-9]|\\(?:[dt]?frac|infty))", re.IGNORECASE)
DIGIT = re.compile("[0-9]")
INFINITY = re.compile(r"(?<![A-Za-z\\])infinity(?![A-Za-z])", re.IGNORECASE)
CLOSING = re.compile(
    r"\.? ?I hope (?:it|this) is correct\.?$"
    r"|,? \(?(?:since|because)(?: (?!(?:no|not|never|wrong|incorrect|guess\w*|but|or)(?![A-Za-z]))[^ ]+)+$"
    r"|(?<=[0-9})$]),? (?:\((?:see above|final|verified|checked|confirmed)\)|(?:so|and) we are done"
    r"|which is (?:even|odd|prime|positive)"
    r"|as (?:desired|required|requested|needed|claimed|wanted|(?:shown|computed|found|derived)(?: above)?)"
    r"|by (?:symmetry|induction|(?!the wrong)[A-Za-z' -]+ (?:theorem|principle|formula|inequality|lemma|rule)))$"
    r"|(?<= ways) to [a-z ]+$"
    r"|(?:(?<= pairs)|(?<= triples)|(?<=uples)) \$?\([a-z](?:, ?[a-z])+\)\$?$"
    r"|(?<=[0-9a-z})$]),? (?:which is )?(?:attained|achieved|reached) (?:at|when|for|by) \$?[A-Za-z(] ?[^A-Za-z]*$",
)
"Words that close an answer: those of a widely used prompt, a reason, or where an extreme value is attained."


class Gold(NamedTuple):
    """A gold answer, read once.

    Attributes:
        text: the stripped gold.
        opened: the same with text commands and dollar signs removed.
        squeezed: both without blanks, to recognise answers that are the same text.
        integer: canonical text if it is an integer, without its unit or percent sign.
        percent: whether it has a percent sign or word; an answer may then have one too.
        parts: what it consists of, see `structure`.
        names: the names of its parts, as in x = 1, y = 2; empty if they have none.
        variable: the variable, if it is an inequality.
        letters: its unknowns.
        plain: the gold in lower case, if it is text rather than mathematics.
        equation: left side minus right side, if it is one equation between unknowns, such as y = 2x + 3; else "".
    """

    text: str
    opened: str
    squeezed: tuple[str, str]
    integer: str | None
    percent: bool
    parts: tuple[Part, ...]
    names: tuple[str, ...]
    variable: str
    letters: frozenset[str]
    plain: str | None
    equation: str = ""


@lru_cache(maxsize=4096)
def read_gold(gold: str) -> Gold:
    r"""A gold in one of the forms that data sets use: bare, in $ or \boxed{}, as name = value, with a unit."""
    if sum(gold.count(name + "{") for name in BOXES) == 1:
        gold = last_box(gold) or gold
    text = strip_decoration(gold)
    percent = PERCENT.search(text) is not None
    bare = strip_decoration(PERCENT.sub("", text).rstrip("\\")) if percent else text
    raw: tuple[Part, ...] = (("", text),)
    if len(bare) > LONGEST:
        return Gold(text, text, (squeezed(text),) * 2, None, percent, raw, (), "", unknowns(text), None)
    opened = opened_span(bare)
    same = squeezed(text), squeezed(opened)
    plain = plain_text(opened, text)
    if (matrix := structure.read_matrix(opened)) is not None:
        entries = (matrix[0], *map(spelled, matrix[1:]))
        return Gold(text, opened, same, None, percent, (entries,), (), "", unknowns(opened), plain)
    equation = equation_of(opened)
    reading = structure.attempt(opened)
    if reading is None and TEXT.search(bare) and TEXT.sub("", bare).strip():
        reading = structure.attempt(opened_span(TEXT.sub(" ", bare)))  # the gold has a unit that is in no list
    if reading is None or reading.members or "\\begin" in opened:
        relation = re.search(r"[=<>≤≥]|\\(?:[lg]eq?|n?eq?|lt|gt|begin)(?![a-z])", opened) is not None
        raw = (("raw" if relation else "", opened),)
        return Gold(text, opened, same, None, percent, raw, (), "", unknowns(opened), plain, equation)
    reading = structure.as_tuple(reading)
    parts = tuple((part[0], *map(spelled, part[1:])) for part in reading.parts)
    value = parse_number(parts[0][1]) if len(parts) == 1 and parts[0][0] == "" else None
    letters = frozenset().union(*(unknowns(piece) for part in parts for piece in part[1:]))
    names = tuple(reading.names[0].split(",")) if len(reading.names) == 1 and reading.names[0] else ()
    integer = value if isinstance(value, str) else None
    return Gold(text, opened, same, integer, percent, parts, names, reading.variable, letters, plain, equation)


def equation_of(opened: str) -> str:
    """Left side minus right side of an equation between unknowns; "" for x = 5 and f(x) = x^2, which give a value."""
    difference, sides = structure.difference(opened), opened.split("=")
    if difference is None or structure.CALL.fullmatch(sides[0].strip()):
        return ""
    return spelled(difference) if all(map(unknowns, sides)) or len(unknowns(opened)) > 1 else ""


def opened_span(span: str) -> str:
    """A stripped span without text commands, dollars, and degree signs that are mere units."""
    text = OPENER.sub(" ", radians(without_dollars(open_text(CLOSING.sub("", span)))), count=1)
    if DIGIT.search(text) is None:
        text = in_digits(text)
    elif text.endswith(")"):
        head, _, aside = text[:-1].partition("(")  # 204 (two hundred four)
        text = in_digits(head) if in_digits(head).strip() == in_digits(aside).strip() else text
    if "nfinity" in text:
        text = INFINITY.sub(r"\\infty", text)
    text = strip_decoration(INTRODUCTION.sub(" ", text, count=1))
    if hence := HENCE.match(text):
        text = text[hence.end() :]
    return "-" + text[signed.end() :] if (signed := SIGNED.match(text)) else text


def spelled(piece: str) -> str:
    """A piece rewritten for comparison, without floats and mixed numbers."""
    piece = strip_decoration(piece)
    number = parse_number(piece)
    return exact(braced(piece)) if number is None else written(number)


def plain_text(opened: str, text: str) -> str | None:
    r"""A gold that is words or a choice, for comparison as text: \text{Evelyn}, (B), no solution; else None."""
    inner = opened.strip("() .")
    if re.fullmatch("[A-H]|[Yy]es|[Nn]o", inner):
        return inner.lower()
    found = re.findall(r"[A-Za-z]{3,}", inner)
    if re.fullmatch(r"[A-Za-z][A-Za-z '’.,-]*", inner) and any(
        word not in MATHEMATICS and word.lower() not in GREEK for word in found
    ):
        return None if structure.EMPTY.fullmatch(inner) or structure.REALS.fullmatch(inner) else inner.lower()
    return None


def squeezed(text: str) -> str:
    r"""Text without blanks, full stop and \text{}, for answers that are words. Case matters: x is not X."""
    return MEANINGLESS_BLANK.sub("", TEXT.sub(r"\1", text)).rstrip(".")
