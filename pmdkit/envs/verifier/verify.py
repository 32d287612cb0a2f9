r"""One response, one verdict: right, wrong, or none, and the third is never the second.

Extract, strict integers, refusals and limits decide nearly all responses here at once. They parse no mathematics and
start no process, and every step is linear in the length of the response. A worker of the pool compares the rest.
"""

import atexit
import re
import threading
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from pmdkit.envs.verifier import conventions
from pmdkit.envs.verifier.limits import too_complex
from pmdkit.envs.verifier.numbers import (
    BOXES,
    LONGEST,
    PLAIN,
    answer_line,
    canonical_integer,
    last_box,
    parse_number,
    strip_decoration,
)

if TYPE_CHECKING:
    from pmdkit.envs.verifier.pool import Grader

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
