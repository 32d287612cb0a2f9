"""The pace of a long phase, for the display."""

import time

from pmdkit.trainer import Display


class ProgressClock:
    """Shows how fast a phase is and how long it will take; without a display it does nothing."""

    def __init__(self, display: Display | None) -> None:
        self.display = display
        self.what = ""
        self.began = 0.0

    def progress(self, what: str, done: float, total: float, tokens: int) -> None:
        """Show how much of a phase is done, with how many tokens written."""
        if self.display is None:
            return
        now = time.monotonic()
        if what != self.what or done == 0 == tokens:
            self.what, self.began = what, now
        spent = now - self.began
        words = []
        if tokens and spent > 0.1:
            words.append(f"{tokens:,} tokens, {tokens / spent:,.0f} per second")
        if 0 < done < total:
            words.append(f"{spent * (total - done) / done:.0f} s left")
        self.display.work(what, done, total, ", ".join(words))
