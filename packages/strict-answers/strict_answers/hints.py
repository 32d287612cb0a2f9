"""What a problem allows around its answer: its own words, and an approximation if it asks for one."""

import re
from functools import lru_cache
from typing import NamedTuple

from strict_answers.vocabulary import CHANGING, ROUNDING

ASKS_TO_ROUND = re.compile(
    r"(?<![A-Za-z])(?:round|nearest|approximat|estimate|decimal place|significant)", re.IGNORECASE
)


class Hints(NamedTuple):
    """What a problem allows around its answer.

    Attributes:
        allowed: its words, without those that change a number.
        rounded: whether it asks for a rounded value, so that "about 34" is a commitment.
    """

    allowed: frozenset[str] = frozenset()
    rounded: bool = False


@lru_cache(maxsize=256)
def hints_of(problem: str) -> Hints:
    """The hints in a problem."""
    found = frozenset(word.lower() for word in re.findall(r"(?<![\\A-Za-z])[A-Za-z]{3,}", problem))
    return Hints(found - CHANGING - ROUNDING, ASKS_TO_ROUND.search(problem) is not None)
