r"""One response, one verdict: right, wrong, or none, and the third is never the second.

Where the answer stands, strict integers, refusals and limits decide nearly all responses here at once. They parse no
mathematics and start no process, and every step is linear in the length of the response. A worker of the pool compares
the rest.
"""

import atexit
import re
import threading
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from pmdkit.envs.verifier import conventions
from pmdkit.envs.verifier.conventions import closing, too_complex

if TYPE_CHECKING:
    from pmdkit.envs.verifier.pool import Grader

# An answer stands after the last `Answer:`, or in the last `\boxed{}`. Source of the marker: the prompt and reward of
# DAPO (arXiv:2503.14476), `Answer\s*:` in any case, last one wins.
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


Path = Literal["integer", "symbolic", "own", "none", "rejected", "timeout"]
SHAPES = ((conventions.SET, conventions.PAIR), (conventions.PAIR, conventions.SET))
SHOWN = 1000
"Characters of a span that a verdict keeps."
LOCK = threading.Lock()
GRADERS: "dict[bool, Grader]" = {}


@dataclass(frozen=True)
class Verdict:
    """One response judged.

    Attributes:
        correct: True, False, or None where there is no verdict: the response is unscored.
        extracted: the span taken for the answer, cut and with control characters escaped; None where there is none.
        path: how it was decided. "integer": strict comparison of integers; "symbolic": math-verify on the extracted
            span; "own": a user's grader; "none": no answer was found; "rejected": decided by a rule without parsing
            (cut off, a chain, several answers, too large to parse); "timeout": the worker ran over its time or memory
            or died.
        reason: one short sentence for a person, as safe to print.
        value: 1 right, 0 wrong, between for a user's grader that gives partial credit; None where unscored.
    """

    correct: bool | None
    extracted: str | None
    path: Path
    reason: str
    value: float | None = None

    @property
    def scored(self) -> bool:
        """Whether there is a verdict."""
        return self.correct is not None


def verify(response: str, gold: str, *, boxed: bool = False, truncated: bool = False) -> Verdict:
    r"""Whether the answer that `response` ends with equals `gold`; never raises for any text, from any thread.

    The answer is what follows the last `Answer:`, in any case. What counts as equal is in `conventions.TABLE`.

    Args:
        response: what a model wrote, without the prompt.
        gold: the answer of the data set, such as "34" or "\\frac{1}{2}".
        boxed: the answer stands in the last \boxed{} instead.
        truncated: the length limit cut the response off; it is wrong, whatever it says.

    Returns:
        A verdict whose `correct` is None if the comparison ran over its time or memory: unscored, never wrong.
    """
    graded = grade_by_rules(response, gold, boxed=boxed, truncated=truncated)
    if not isinstance(graded, Pending):
        return graded
    from pmdkit.envs.verifier.pool import Item

    return shared_grader(boxed).grade([Item(response, gold)])[0]


def shared_grader(boxed: bool) -> "Grader":
    """The grader behind `verify`, made on first use and closed when the process ends."""
    from pmdkit.envs.verifier.pool import Grader

    with LOCK:
        if boxed not in GRADERS:
            GRADERS[boxed] = Grader(boxed=boxed)
            atexit.register(GRADERS[boxed].close)
        return GRADERS[boxed]


class Pending(NamedTuple):
    """For a worker: is this span equal to this gold?"""

    span: str
    gold: str
    extracted: str


class Gold(NamedTuple):
    """A gold answer, read once.

    Attributes:
        text: stripped.
        integer: canonical text if it is an integer, with a unit or percent sign taken off.
        percent, several, relation: what it contains, and an answer may therefore contain too.
    """

    text: str
    integer: str | None
    percent: bool
    several: bool
    relation: bool


@lru_cache(maxsize=4096)
def read_gold(gold: str) -> Gold:
    r"""A gold in one of the forms that data sets use: bare, in $ or \boxed{}, as name = value, with a unit."""
    if sum(gold.count(name + "{") for name in BOXES) == 1:
        gold = last_box(gold) or gold
    text = strip_decoration(gold)
    percent = conventions.PERCENT.search(text) is not None
    bare = strip_decoration(conventions.PERCENT.sub("", text).rstrip("\\")) if percent else text
    value = value_in(bare)[0] if len(bare) <= LONGEST else None
    chained = conventions.is_chained(text)
    integer = value if isinstance(value, str) and not chained else None
    return Gold(
        text,
        integer,
        percent,
        conventions.has_several(text),
        chained or bool(re.search(r"[<>≤≥]|\\[lg]eq?|\\n?eq", text)),
    )


def value_in(span: str) -> tuple[object, str | None]:
    """(value, None) of a stripped span that is a number, alone, named or among words; else (None, refusal or None)."""
    value = parse_number(span)
    if value is not None:
        return value, None
    text = conventions.open_text(span)
    left, equals, right = text.partition("=")
    if equals and "=" not in right and conventions.NAME.fullmatch(left.strip()):
        text = strip_decoration(right)
        value = parse_number(text)
        if value is not None:
            return value, None
    word, refusal = conventions.number_among_words(text)
    if word is not None:
        return parse_number(word), None
    return parse_number(strip_decoration(text)), refusal


def grade_by_rules(response: str, gold: str, *, boxed: bool = False, truncated: bool = False) -> Verdict | Pending:
    """The verdict, or the comparison that a worker must make."""
    if truncated:
        return wrong_verdict(None, "rejected", "cut off by the length limit")
    span = last_box(response) if boxed else answer_line(response)
    if span is None:
        return wrong_verdict(None, "none", "no \\boxed{} with an answer" if boxed else "no Answer: line with an answer")
    wanted = read_gold(gold)
    if wanted.integer is not None and len(span) <= LONGEST and PLAIN.fullmatch(span):
        return plain_integers(span, wanted.integer)
    if not wanted.text:
        return wrong_verdict(span, "rejected", "the gold answer is empty")
    limit = max(LONGEST, 4 * len(gold))
    if len(span) > limit:
        return wrong_verdict(span, "rejected", f"{len(span)} characters, more than any answer needs")
    return compare_spans(span, strip_decoration(span), wanted)


@lru_cache(maxsize=4096)
def plain_integers(span: str, gold: str) -> Verdict:
    """The usual case; the answers of a group repeat."""
    return verdict(canonical_integer(span) == gold, span, "integer", "integers compared")


def compare_spans(extracted: str, span: str, wanted: Gold) -> Verdict | Pending:
    """The rules of conventions.TABLE in their order."""
    inner = conventions.only_formula(span)
    span = span if inner == span else strip_decoration(inner)
    if not span:
        return wrong_verdict(extracted, "none", "nothing is left of the answer but decoration")
    if conventions.UNFINISHED.search(extracted) and not conventions.UNFINISHED.search(wanted.text):
        return wrong_verdict(extracted, "rejected", "dots: the value goes on")
    if squeezed(span) == squeezed(wanted.text):
        path: Path = "integer" if wanted.integer is not None else "symbolic"
        return verdict(True, extracted, path, "the same text")
    if conventions.PERCENT.search(span):
        if not wanted.percent:
            return wrong_verdict(extracted, "rejected", "a percent sign that the gold does not have")
        span = strip_decoration(conventions.PERCENT.sub("", span).rstrip("\\ "))
    if not wanted.relation and conventions.is_chained(span):
        return wrong_verdict(extracted, "rejected", "a chain of equalities, not one value")
    if wanted.integer is not None:
        value, refusal = value_in(span)
        if value is not None:
            return verdict(value == wanted.integer, extracted, "integer", "numbers compared exactly")
        if refusal is not None:
            return wrong_verdict(extracted, "rejected", refusal)
    if any(one.match(span) and other.match(wanted.text) for one, other in SHAPES):
        return wrong_verdict(extracted, "rejected", "a set is no pair")
    if not wanted.several and conventions.has_several(span):
        return wrong_verdict(extracted, "rejected", "several answers where the gold has one")
    if (reason := too_complex(span, wanted.text)) is not None:
        return wrong_verdict(extracted, "rejected", f"not parsed: {reason}")
    if (reason := conventions.foreign_symbols(span, wanted.text)) is not None:
        return wrong_verdict(extracted, "rejected", reason)
    return Pending(span, wanted.integer or wanted.text, shortened(extracted))


def squeezed(text: str) -> str:
    r"""Text without blanks, full stop and \text{}, for answers that are words. Case counts: x is not X."""
    return re.sub(r"(?<![0-9]) +| +(?![0-9])", "", conventions.TEXT.sub(r"\1", text)).rstrip(".")


def verdict(correct: bool, extracted: str, path: Path, reason: str) -> Verdict:
    """Right or wrong, with the value that goes with it."""
    return Verdict(correct, shortened(extracted), path, reason, float(correct))


def wrong_verdict(extracted: str | None, path: Path, reason: str) -> Verdict:
    """A wrong answer."""
    return Verdict(False, None if extracted is None else shortened(extracted), path, reason, 0.0)


def shortened(span: str) -> str:
    """A span for a verdict, cut where it is longer than a person reads."""
    return printable(span, SHOWN)


def printable(text: str, most: int) -> str:
    """At most so many characters for logs and records; those that steer a terminal or turn text around are escaped."""
    safe = "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text[:most]
    )
    return safe if len(text) <= most and len(safe) <= most else safe[:most] + "..."
