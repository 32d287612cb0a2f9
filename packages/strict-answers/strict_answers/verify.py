r"""Judge one response: right, wrong, or unscored, and unscored never counts as wrong.

Finding the answer, strict numbers, rejections and limits decide nearly all responses here at once. They parse no
mathematics and start no process, and every step is linear in the length of the response. A worker of the pool compares
the rest.
"""

import atexit
import re
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from strict_answers import shapes
from strict_answers.shapes import Part, too_complex, unknown_symbol
from strict_answers.spans import (
    BOXES,
    DOTTED,
    PLAIN,
    TEXT,
    answer_line,
    braced,
    canonical_integer,
    exact,
    last_box,
    open_text,
    parse_number,
    radians,
    strip_decoration,
    without_dollars,
    written,
)
from strict_answers.words import MATHEMATICS, Hints, hints_of

if TYPE_CHECKING:
    from strict_answers.pool import Grader

NO_HINTS = Hints()
LONGEST = 1000
"Maximum characters of a span; a longer one is not an answer that anyone asks for."
PERCENT = re.compile(r"\\?%|(?<![A-Za-z])(?:per ?cent|percentage|pct)(?![A-Za-z])", re.IGNORECASE)
UNFINISHED = re.compile(r"\.\.\.|…|\\[lcd]?dots(?![A-Za-z])")
OPENER = re.compile(
    r"(?:so|thus|therefore|hence|then|finally|overall|altogether|in (?:total|all|conclusion)) ?, ", re.IGNORECASE
)
INTRODUCTION = re.compile(
    r"(?:so |thus |then |therefore |hence )?(?:we (?:have|get|find|obtain|conclude)|i get|this gives|it follows"
    r"|the (?:final |correct )?(?:answer|value|solution|root)s? (?:is|are))(?: that)? ?:? ",
    re.IGNORECASE,
)
"An introduction; what follows is judged on its own."
HOPE = re.compile(r"\.? ?I hope (?:it|this) is correct\.?$")
"The closing phrase of answers to a widely used prompt."
ROUNDED = re.compile(
    r"(?<![A-Za-z])(?:about|approximately|approx\.?|around|roughly|nearly) |\\approx(?![A-Za-z]) ?|≈ ?"
)
IS = re.compile(
    r"(?:the (?:final |correct |right )?(?:answer|choice|option|result|name|day|winner|person|statement|solution) |it )"
    r"(?:is|must be) ?:? ?(?:option |choice )?",
    re.IGNORECASE,
)

Path = Literal["integer", "symbolic", "own", "none", "rejected", "timeout"]
SHOWN = 1000
"Characters of a span that a verdict keeps."
LOCK = threading.Lock()
GRADERS: "dict[bool, Grader]" = {}


@dataclass(frozen=True)
class Verdict:
    """One response judged.

    Attributes:
        correct: True, False, or None if there is no verdict: the response is unscored.
        extracted: the span taken for the answer, cut and with control characters escaped; None if there is none.
        path: how it was decided. "integer": exact comparison of plain numbers; "symbolic": math-verify on the
            extracted span, or the same text; "own": a user's grader; "none": no answer was found; "rejected": decided
            by a rule without parsing (cut off, an unknown word, several answers, too large to parse); "timeout": the
            worker ran over its time or memory or died.
        reason: one short sentence for a person, equally safe to print.
        value: 1 for right, 0 for wrong, or the number that a user's grader gave; None if unscored.
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


def verify(
    response: str, gold: str, *, boxed: bool = False, truncated: bool = False, problem: str | None = None
) -> Verdict:
    r"""Whether the answer that `response` ends with equals `gold`; never raises for any text, from any thread.

    The answer is what follows the last `Answer:`, in any case. What counts as equal is in `conventions.TABLE`.

    Args:
        response: what a model wrote, without the prompt.
        gold: the answer of the data set, such as "34" or "\\frac{1}{2}".
        boxed: the answer is in the last \boxed{} instead.
        truncated: the length limit cut the response off; it counts as wrong, whatever it says.
        problem: the question, if available: its words may appear around a value, and "about 34" counts if it asks to
            round.

    Returns:
        A verdict whose `correct` is None if the comparison ran over its time or memory: unscored, never wrong.
    """
    graded = grade_by_rules(response, gold, boxed=boxed, truncated=truncated, problem=problem)
    if not isinstance(graded, Pending):
        return graded
    from strict_answers.pool import Item

    return shared_grader(boxed).grade([Item(response, gold, problem=problem)])[0]


def shared_grader(boxed: bool) -> "Grader":
    """The grader behind `verify`, made on first use and closed when the process ends."""
    from strict_answers.pool import Grader

    with LOCK:
        if boxed not in GRADERS:
            GRADERS[boxed] = Grader(boxed=boxed)
            atexit.register(GRADERS[boxed].close)
        return GRADERS[boxed]


class Pending(NamedTuple):
    """A question for a worker: does each member, a list of parts in any order, equal the gold?"""

    members: tuple[tuple[Part, ...], ...]
    gold: tuple[Part, ...]
    extracted: str


class Gold(NamedTuple):
    """A gold answer, read once.

    Attributes:
        text: the stripped gold.
        opened: the same with text commands and dollar signs removed.
        squeezed: both without blanks, to recognise answers that are the same text.
        integer: canonical text if it is an integer, without its unit or percent sign.
        percent: whether it has a percent sign or word; an answer may then have one too.
        parts: what it consists of, see `shapes`.
        names: the names of its parts, as in x = 1, y = 2; empty if they have none.
        variable: the variable, if it is an inequality.
        letters: its unknowns.
        plain: the gold in lower case, if it is text rather than mathematics.
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
        return Gold(text, text, (squeezed(text),) * 2, None, percent, raw, (), "", shapes.unknowns(text), None)
    opened = opened_span(bare)
    same = squeezed(text), squeezed(opened)
    plain = plain_text(opened, text)
    reading = shapes.read(opened)
    if reading.refusal is not None and TEXT.search(bare) and TEXT.sub("", bare).strip():
        reading = shapes.read(opened_span(TEXT.sub(" ", bare)))  # the gold has a unit that is in no list
    if reading.members or reading.refusal is not None or "\\begin" in opened:
        relation = re.search(r"[=<>≤≥]|\\(?:[lg]eq?|n?eq?|lt|gt|begin)(?![a-z])", opened) is not None
        raw = (("raw" if relation else "", opened),)
        return Gold(text, opened, same, None, percent, raw, (), "", shapes.unknowns(opened), plain)
    reading = shapes.as_tuple(reading)
    parts = tuple((part[0], *map(spelled, part[1:])) for part in reading.parts)
    value = parse_number(parts[0][1]) if len(parts) == 1 and parts[0][0] == "" else None
    letters = frozenset().union(*(shapes.unknowns(piece) for part in parts for piece in part[1:]))
    names = tuple(reading.names[0].split(",")) if len(reading.names) == 1 and reading.names[0] else ()
    integer = value if isinstance(value, str) else None
    return Gold(text, opened, same, integer, percent, parts, names, reading.variable, letters, plain)


def opened_span(span: str) -> str:
    """A stripped span without text commands, dollars, and degree signs that are mere units."""
    text = OPENER.sub("", radians(without_dollars(open_text(HOPE.sub("", span)))), count=1)
    return strip_decoration(INTRODUCTION.sub("", text, count=1))


def spelled(piece: str) -> str:
    """A piece rewritten for comparison, without floats and mixed numbers."""
    piece = strip_decoration(piece)
    number = parse_number(piece)
    return exact(braced(piece)) if number is None else written(number)


def plain_text(opened: str, text: str) -> str | None:
    r"""A gold that is words or a choice, for comparison as text: \text{Evelyn}, (B), no solution; else None."""
    inner = opened.strip("() .")
    if re.fullmatch("[A-H]", inner):
        return inner.lower()
    found = re.findall(r"[A-Za-z]{3,}", inner)
    if re.fullmatch(r"[A-Za-z][A-Za-z '’.,-]*", inner) and any(
        word not in MATHEMATICS and word.lower() not in shapes.GREEK for word in found
    ):
        return None if shapes.EMPTY.fullmatch(inner) or shapes.REALS.fullmatch(inner) else inner.lower()
    return None


def grade_by_rules(
    response: str, gold: str, *, boxed: bool = False, truncated: bool = False, problem: str | None = None
) -> Verdict | Pending:
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
    return compare_span(span, gold, NO_HINTS if problem is None else hints_of(problem))


@lru_cache(maxsize=2048)
def compare_span(span: str, gold: str, hints: Hints) -> "Verdict | Pending":
    """Like `compare_spans`, but cached, since answers within a group repeat."""
    return compare_spans(span, strip_decoration(span), read_gold(gold), hints)


@lru_cache(maxsize=4096)
def plain_integers(span: str, gold: str) -> Verdict:
    """The usual case; cached, since answers within a group repeat."""
    return verdict(canonical_integer(span) == gold, span, "integer", "integers compared")


def compare_spans(extracted: str, span: str, wanted: Gold, hints: Hints) -> Verdict | Pending:
    """Apply the rules of conventions.TABLE in order."""
    if not span:
        return wrong_verdict(extracted, "none", "nothing is left of the answer but decoration")
    if UNFINISHED.search(extracted) and not UNFINISHED.search(wanted.text) and not DOTTED.search(span):
        return wrong_verdict(extracted, "rejected", "dots: the value goes on")
    if squeezed(span) == wanted.squeezed[0]:
        path: Path = "integer" if wanted.integer is not None else "symbolic"
        return verdict(True, extracted, path, "the same text")
    if signs := PERCENT.findall(span):
        if not wanted.percent or len(signs) > 1:
            return wrong_verdict(extracted, "rejected", "a percent sign that the gold does not have")
        span = strip_decoration(PERCENT.sub("", span).rstrip("\\ "))
    text = opened_span(span)
    if squeezed(text) == wanted.squeezed[1]:
        return verdict(True, extracted, "integer" if wanted.integer is not None else "symbolic", "the same text")
    if wanted.plain is not None:
        same = IS.sub("", text.strip("() ."), count=1).strip("() .").lower() == wanted.plain
        return verdict(same, extracted, "symbolic" if same else "rejected", "the same text" if same else "another text")
    if hints.rounded:
        text = ROUNDED.split(text)[-1] if shapes.APPROXIMATE.search(text) else ROUNDED.sub("", text)
    if wanted.parts[0][0] == "raw":
        return for_worker(extracted, ((("raw", text),),), wanted)
    reading = shapes.read(text, wanted.letters, hints.allowed)
    if reading.refusal is not None:
        return wrong_verdict(extracted, "rejected", reading.refusal)
    if wanted.names and "" in reading.names and len(reading.parts) == len(wanted.names) > 1:
        reading = reading._replace(parts=(("(,)", *(part[-1] for part in reading.parts)),), names=("",))
    elif len(wanted.parts) == 1 and wanted.parts[0][0] == "(,)":
        reading = shapes.as_tuple(reading)
    if other_names(reading.names, wanted.names):
        return wrong_verdict(extracted, "rejected", "other names than those of the gold")
    if wanted.variable and any(part[0] == "raw" for part in reading.parts):
        wanted = wanted._replace(parts=(("raw", wanted.opened),))
    if wanted.variable and reading.variable and wanted.variable != reading.variable:
        return wrong_verdict(extracted, "rejected", f"an inequality in another unknown than '{wanted.variable}'")
    members = tuple(
        tuple((part[0], *map(spelled, part[1:])) for part in member) for member in (*reading.members, reading.parts)
    )
    return compare_members(extracted, members, wanted)


def other_names(names: tuple[str, ...], wanted: tuple[str, ...]) -> bool:
    """Whether an answer names something other than the gold: y = 5 for x = 5, a cosine for a sine. Longer names may."""
    if len(names) != 1 or not names[0] or not wanted:
        return False
    name, gold = names[0], ",".join(wanted)
    exact_names = "," in name + gold or len(name) == len(gold) == 1 or "\\" in name + gold
    return exact_names and name != gold and ("," in name) == ("," in gold)


def compare_members(extracted: str, members: tuple[tuple[Part, ...], ...], wanted: Gold) -> Verdict | Pending:
    """One commitment: every member of a chain must equal the gold. Plain numbers are compared here."""
    shape = sorted((part[0], len(part)) for part in wanted.parts)
    for member in members:
        if len(member) != len(wanted.parts):
            reason = "several answers where the gold has one" if len(wanted.parts) == 1 else "another number of answers"
            return wrong_verdict(extracted, "rejected", reason)
        if sorted((part[0], len(part)) for part in member) != shape:
            return wrong_verdict(extracted, "rejected", "another kind of object than the gold")
    if len(wanted.parts) == 1 and wanted.parts[0][0] in ("base", "empty"):
        same = all(member == wanted.parts for member in members)
        return verdict(same, extracted, "symbolic", "digits and bases compared" if same else "other digits or base")
    if len(wanted.parts) == 1 == len(wanted.parts[0]) - 1:
        left = []
        for member in members:
            equal = equal_numbers(member[0][1], wanted.parts[0][1])
            if equal is False:
                contradiction = "numbers compared exactly" if len(members) == 1 else "the members of the chain differ"
                return verdict(False, extracted, "integer", contradiction)
            if equal is None:
                left.append(member)
        if not left:
            return verdict(True, extracted, "integer", "numbers compared exactly")
        members = tuple(left)
    return for_worker(extracted, members, wanted)


def equal_numbers(piece: str, gold: str) -> bool | None:
    """Whether two pieces are the same plain number; None if one of them is not a plain number."""
    one, other = parse_number(piece), parse_number(gold)
    return None if one is None or other is None else one == other


def for_worker(extracted: str, members: tuple[tuple[Part, ...], ...], wanted: Gold) -> Verdict | Pending:
    """The request for a worker, or a verdict that says why the answer must not be parsed."""
    for member in members:
        for part in member:
            for piece in part[1:]:
                if (reason := too_complex(piece, wanted.text)) is not None:
                    return wrong_verdict(extracted, "rejected", f"not parsed: {reason}")
                if (reason := unknown_symbol(piece, wanted.text)) is not None:
                    return wrong_verdict(extracted, "rejected", reason)
    return Pending(members, wanted.parts, shortened(extracted))


def squeezed(text: str) -> str:
    r"""Text without blanks, full stop and \text{}, for answers that are words. Case matters: x is not X."""
    text = re.sub(r"(?<=[0-9]) *: *(?=[0-9])", ":", TEXT.sub(r"\1", text))
    return re.sub(r"(?<![0-9,]) +| +(?![0-9])", "", text).rstrip(".")


def verdict(correct: bool, extracted: str, path: Path, reason: str) -> Verdict:
    """A verdict of right or wrong, with the matching value."""
    return Verdict(correct, shortened(extracted), path, reason, float(correct))


def wrong_verdict(extracted: str | None, path: Path, reason: str) -> Verdict:
    """The verdict on a wrong answer."""
    return Verdict(False, None if extracted is None else shortened(extracted), path, reason, 0.0)


def shortened(span: str) -> str:
    """A span for a verdict, cut to a length that a person reads."""
    return printable(span, SHOWN)


def printable(text: str, most: int) -> str:
    """At most `most` characters for logs and records; terminal and text-direction control characters are escaped."""
    safe = "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text[:most]
    )
    return safe if len(text) <= most and len(safe) <= most else safe[:most] + "..."
