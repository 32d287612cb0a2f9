"""The pace of a long phase, for the display."""

import time

from pmdkit.fit import Display, RunContext, TrainerCallback


class ProgressCallback(TrainerCallback):
    """Shows how fast a phase is and how long it will take.

    The learner and the evaluation get its method `progress` before the run and its display exist.
    """

    def __init__(self, display: Display | None = None) -> None:
        self.display = display or Display()
        self.phase = ""
        self.began = 0.0

    def on_init_end(self, run: RunContext) -> None:
        """Use the display of the run."""
        self.display = run.display

    def progress(self, phase: str, done: float, total: float, tokens: int) -> None:
        """Show how much of a phase is done, with how many tokens written."""
        now = time.monotonic()
        if phase != self.phase or done == 0 == tokens:
            self.phase, self.began = phase, now
        spent = now - self.began
        words = []
        if tokens and spent > 0.1:
            words.append(f"{tokens:,} tokens, {tokens / spent:,.0f} per second")
        if 0 < done < total:
            words.append(f"{spent * (total - done) / done:.0f} s left")
        self.display.work(phase, done, total, ", ".join(words))
