"""Times of a pmdkit run: its start, the end of each step, and when it first reached a target pass rate.

Kept because the benchmarks of toy runs time their steps with it.
"""

import time
from typing import Any

from harness.clock import Reading

from pmdkit.fit import Display


def now() -> Reading:
    """The time on both clocks."""
    return Reading(time.perf_counter(), time.process_time())


def between(begin: Reading, end: Reading, parts: int = 1) -> Reading:
    """Seconds from `begin` to `end`, divided into equal parts."""
    return Reading(*((b - a) / parts for a, b in zip(begin, end, strict=True)))


class Stopwatch(Display):
    """A display that shows nothing.

    Args:
        target: pass rate; when it is first reached, `reached` becomes (seconds, step).
    """

    def __init__(self, target: float = 1.0) -> None:
        self.target = target
        self.began = now()
        self.ends: list[Reading] = []
        self.reached: tuple[Reading, int] | None = None

    def show(self, row: dict[str, Any]) -> None:
        """Note the end of a step."""
        self.ends.append(now())
        if self.reached is None and row["pass_rate"] >= self.target:
            self.reached = between(self.began, self.ends[-1]), row["step"]

    def per_step(self) -> Reading:
        """Mean seconds after the first step, from the end of one step to the end of the next: nothing is left out."""
        return between(self.ends[0], self.ends[-1], len(self.ends) - 1)
