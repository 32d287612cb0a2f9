"""What the verifier says of one response. Right, wrong, or no verdict: the third is never the second."""

from dataclasses import dataclass
from typing import Literal

Path = Literal["integer", "symbolic", "own", "none", "rejected", "timeout"]


@dataclass(frozen=True)
class Verdict:
    """One response judged.

    Attributes:
        correct: True, False, or None where there is no verdict: the response is unscored.
        extracted: the span taken for the answer, None where there is none.
        path: how it was decided. "integer": strict comparison of integers; "symbolic": math-verify on the extracted
            span; "own": a user's grader; "none": no answer was found; "rejected": decided by a rule without parsing
            (cut off, a chain, several answers, too large to parse); "timeout": the worker ran over its time or memory
            or died.
        reason: one short sentence for a person.
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
