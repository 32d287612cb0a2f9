"""What the verifier says of one response. Right, wrong, or no verdict: the third is never the second."""

from dataclasses import dataclass
from typing import Literal

Path = Literal["integer", "symbolic", "own", "none", "rejected", "timeout"]


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


def printable(text: str, most: int) -> str:
    """At most so many characters for logs and records; those that steer a terminal or turn text around are escaped."""
    safe = "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode() for char in text[:most]
    )
    return safe if len(text) <= most and len(safe) <= most else safe[:most] + "..."
