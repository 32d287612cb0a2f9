"""What a person is told while a language model is evaluated: how fast it goes, and what to beware of."""

import time
from collections.abc import Sequence

from pmdkit.llm.evaluate import Answered
from pmdkit.session import Display


class Pace:
    """Tells a display how fast it goes and how long it takes; what was done before this process does not count."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.began = time.monotonic()
        self.before: int | None = None

    def tell(self, done: int, total: int, tokens: int) -> None:
        """Responses done, responses in all, tokens so far."""
        if self.before is None:
            self.before = done
        seconds = time.monotonic() - self.began
        parts = [f"{tokens:,} tokens, {tokens / seconds:,.0f}/s" if seconds else f"{tokens:,} tokens"]
        if self.before < done < total:
            parts.append(f"{seconds * (total - done) / (done - self.before):.0f} s left")
        self.display.work("evaluation", done, total, ", ".join(parts))


def tell_leaks(copies: int | None, problems: int, lost: str | None, display: Display) -> None:
    """Problems that the run was trained on say little."""
    if copies:
        display.warn(f"{copies} of {problems} problems are in the training set of the run, by their text")
    if lost is not None:
        display.warn(f"whether the run was trained on these problems cannot be told: {lost}")


def tell_unscored(answers: Sequence[Answered], display: Display) -> None:
    """No verdict is counted as not right, which a person must know."""
    without = [answer for answer in answers if not answer.verdict.scored]
    if without:
        reason = without[0].verdict.reason
        display.warn(f"{len(without)} of {len(answers)} responses have no verdict and count as not right ({reason})")
