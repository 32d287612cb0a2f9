r"""The parent's half of a verdict: extract, strict integers, refusals, guard. The rest is left to a worker.

Nothing here parses mathematics or starts a process; every step is linear in the length of the response.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from pmdkit.envs.math_answers import conventions
from pmdkit.envs.math_answers.extract import BOXES, answer_line, last_box
from pmdkit.envs.math_answers.guard import too_much
from pmdkit.envs.math_answers.integer import LONGEST, PLAIN, canonical, number, strip
from pmdkit.envs.math_answers.names import foreign
from pmdkit.envs.math_answers.verdict import Path, Verdict, printable

SHAPES = ((conventions.SET, conventions.PAIR), (conventions.PAIR, conventions.SET))
SHOWN = 1000
"Characters of a span that a verdict keeps."


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
    text = strip(gold)
    percent = conventions.PERCENT.search(text) is not None
    bare = strip(conventions.PERCENT.sub("", text).rstrip("\\")) if percent else text
    value = value_of(bare)[0] if len(bare) <= LONGEST else None
    chained = conventions.chained(text)
    integer = value if isinstance(value, str) and not chained else None
    return Gold(
        text, integer, percent, conventions.several(text), chained or bool(re.search(r"[<>≤≥]|\\[lg]eq?|\\n?eq", text))
    )


def value_of(span: str) -> tuple[object, str | None]:
    """(value, None) of a stripped span that is a number, alone, named or among words; else (None, refusal or None)."""
    value = number(span)
    if value is not None:
        return value, None
    text = conventions.plain(span)
    left, equals, right = text.partition("=")
    if equals and "=" not in right and conventions.NAME.fullmatch(left.strip()):
        text = strip(right)
        value = number(text)
        if value is not None:
            return value, None
    word, refusal = conventions.among_words(text)
    if word is not None:
        return number(word), None
    return number(strip(text)), refusal


def decide(response: str, gold: str, *, boxed: bool = False, truncated: bool = False) -> Verdict | Pending:
    """The verdict, or the comparison that a worker must make."""
    if truncated:
        return wrong(None, "rejected", "cut off by the length limit")
    span = last_box(response) if boxed else answer_line(response)
    if span is None:
        return wrong(None, "none", "no \\boxed{} with an answer" if boxed else "no Answer: line with an answer")
    wanted = read_gold(gold)
    if wanted.integer is not None and len(span) <= LONGEST and PLAIN.fullmatch(span):
        return plain_integers(span, wanted.integer)
    if not wanted.text:
        return wrong(span, "rejected", "the gold answer is empty")
    limit = max(LONGEST, 4 * len(gold))
    if len(span) > limit:
        return wrong(span, "rejected", f"{len(span)} characters, more than any answer needs")
    return compare_spans(span, strip(span), wanted)


@lru_cache(maxsize=4096)
def plain_integers(span: str, gold: str) -> Verdict:
    """The usual case; the answers of a group repeat."""
    return judged(canonical(span) == gold, span, "integer", "integers compared")


def compare_spans(extracted: str, span: str, wanted: Gold) -> Verdict | Pending:
    """The rules of conventions.TABLE in their order."""
    inner = conventions.formula(span)
    span = span if inner == span else strip(inner)
    if not span:
        return wrong(extracted, "none", "nothing is left of the answer but decoration")
    if conventions.UNFINISHED.search(extracted) and not conventions.UNFINISHED.search(wanted.text):
        return wrong(extracted, "rejected", "dots: the value goes on")
    if squeezed(span) == squeezed(wanted.text):
        path: Path = "integer" if wanted.integer is not None else "symbolic"
        return judged(True, extracted, path, "the same text")
    if conventions.PERCENT.search(span):
        if not wanted.percent:
            return wrong(extracted, "rejected", "a percent sign that the gold does not have")
        span = strip(conventions.PERCENT.sub("", span).rstrip("\\ "))
    if not wanted.relation and conventions.chained(span):
        return wrong(extracted, "rejected", "a chain of equalities, not one value")
    if wanted.integer is not None:
        value, refusal = value_of(span)
        if value is not None:
            return judged(value == wanted.integer, extracted, "integer", "numbers compared exactly")
        if refusal is not None:
            return wrong(extracted, "rejected", refusal)
    if any(one.match(span) and other.match(wanted.text) for one, other in SHAPES):
        return wrong(extracted, "rejected", "a set is no pair")
    if not wanted.several and conventions.several(span):
        return wrong(extracted, "rejected", "several answers where the gold has one")
    reason = too_much(span, wanted.text)
    if reason is not None:
        return wrong(extracted, "rejected", f"not parsed: {reason}")
    reason = foreign(span, wanted.text)
    if reason is not None:
        return wrong(extracted, "rejected", reason)
    return Pending(span, wanted.integer or wanted.text, shortened(extracted))


def squeezed(text: str) -> str:
    r"""Text without blanks, full stop and \text{}, for answers that are words. Case counts: x is not X."""
    return re.sub(r"(?<![0-9]) +| +(?![0-9])", "", conventions.TEXT.sub(r"\1", text)).rstrip(".")


def judged(correct: bool, extracted: str, path: Path, reason: str) -> Verdict:
    """Right or wrong, with the value that goes with it."""
    return Verdict(correct, shortened(extracted), path, reason, float(correct))


def wrong(extracted: str | None, path: Path, reason: str) -> Verdict:
    """A wrong answer."""
    return Verdict(False, None if extracted is None else shortened(extracted), path, reason, 0.0)


def shortened(span: str) -> str:
    """A span for a verdict, cut where it is longer than a person reads."""
    return printable(span, SHOWN)
