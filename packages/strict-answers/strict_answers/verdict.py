"""The input and output of judging: an item, its verdict, and text made safe to print."""

from dataclasses import dataclass
from typing import Any, Literal

Path = Literal["integer", "symbolic", "own", "none", "rejected", "timeout"]
SHOWN = 1000
"Characters of an answer that a verdict keeps."
REASON = 200
"Maximum length of a reason that comes from other code."


@dataclass(frozen=True)
class Item:
    """A response to judge against a gold answer.

    Attributes:
        truncated: the length limit cut the response off.
        problem: the question, if available; see `verify`. A grader of your own does not get it.
        row: anything hashable that a grader of your own needs besides.
    """

    response: str
    gold: str
    truncated: bool = False
    problem: str | None = None
    row: Any = None


@dataclass(frozen=True)
class Verdict:
    """One response judged.

    Attributes:
        correct: True, False, or None if there is no verdict: the response is unscored.
        extracted: the span taken for the answer, cut and with control characters escaped; None if there is none.
        path: how it was decided. "integer": exact comparison of plain numbers; "symbolic": math-verify on the
            extracted span, or the same text; "own": a user's grader; "none": no answer was found; "rejected": decided
            by a rule without parsing (cut off, an unknown word, several answers, too large to parse); "timeout": no
            verdict, because the worker ran over its time or memory or died, or the verifier's own code raised.
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
        """Whether the answer was judged: right or wrong, not left without a verdict."""
        return self.correct is not None


def decided(correct: bool, extracted: str | None, path: Path, reason: str) -> Verdict:
    """The verdict right or wrong, with the value 1 or 0."""
    shown = None if extracted is None else printable(extracted, SHOWN)
    return Verdict(correct, shown, path, reason, float(correct))


def wrong(extracted: str | None, path: Path, reason: str) -> Verdict:
    """The verdict on a wrong answer."""
    return decided(False, extracted, path, reason)


def unscored(extracted: str | None, reason: str, path: Path = "timeout") -> Verdict:
    """No verdict, and the reason, made printable: an error of other code may quote the response."""
    return Verdict(None, extracted, path, printable(reason, REASON), None)


def describe(error: BaseException) -> str:
    """An exception as a reason: its type and its message."""
    return f"{type(error).__name__}: {str(error)[:REASON]}"


def printable(text: str, most: int) -> str:
    """The first `most` characters, and "..." if there are more, for logs; control characters are escaped, and count."""
    safe = "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text[:most]
    )
    return safe if len(text) <= most and len(safe) <= most else safe[:most] + "..."
