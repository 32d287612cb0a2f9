"""Answers per second through the verifier: plain integers, parsed answers, and one hostile answer in ten.

Plain integers are graded in this process, in CPU seconds. The others go through one worker, or two with hostile ones,
and are timed by the wall clock, since most of the work is in other processes. verifier.py and a test check the
agreement with labels.

Kept because rows grading/ bound the rate of verdicts.
"""

from collections.abc import Iterator

import verifier
from harness.clock import rate, turns
from harness.rows import Measured

from strict_answers import Grader, Item, verify

TEXT = "Let me think about it once more. " * 100 + "\nAnswer: {}"
PLAIN, PARSED, HOSTILE = 100_000, 500, 2_000


def plain() -> None:
    """Grade plain integers, which this process decides."""
    response = TEXT.format("34")
    for _ in range(PLAIN):
        verify(response, "34")


def measure(rounds: int) -> Iterator[Measured]:
    """One row each."""
    found = turns({"plain": plain}, rounds)
    yield Measured("grading/plain", rate(PLAIN, found["plain"]), found)
    with Grader() as grader:
        grader.probe()
        items = [Item(TEXT.format(f"2^5+{i}"), "34") for i in range(PARSED)]
        found = turns({"parsed": lambda: grader.grade(items)}, rounds)
    yield Measured("grading/parsed", rate(PARSED, found["parsed"], "wall"), found)
    found = turns({"hostile": lambda: verifier.hostile(HOSTILE)}, rounds)
    yield Measured("grading/hostile", rate(HOSTILE, found["hostile"], "wall"), found)
