"""A problem with a checkable answer, and a numbered collection of them. Reading and generating are elsewhere."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Problem:
    """One question.

    Attributes:
        id: unique in its collection, such as "dapo-00050".
        problem: the text of the question alone; template and chat format are added later, never part of it.
        answer: what the verifier compares with.
        source: where it comes from.
    """

    id: str
    problem: str
    answer: str
    source: str = ""


@dataclass(frozen=True)
class MathProblems:
    """Problems numbered from 0, some of them held out from training.

    Attributes:
        name: for reports.
        problem: number to problem, pure: read from a table, or generated from the number.
        train: [n] numbers that training may ask.
        held_out: [m] numbers that it never asks; may be empty.
        counts: what reading dropped, repaired or merged, by reason, for people.
    """

    name: str
    problem: Callable[[int], Problem]
    train: NDArray[np.int64]
    held_out: NDArray[np.int64]
    counts: Mapping[str, int] = field(default_factory=dict)
