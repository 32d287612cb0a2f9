"""One pool for the whole folder, since a worker takes half a second to start; and what several tests share."""

import sys
from pathlib import Path

import pytest

from strict_answers import Grader

sys.path.insert(0, str(Path(__file__).parent / "helpers"))  # workers get the path too, and load judges from there


@pytest.fixture(scope="session")
def grader():
    with Grader(seconds=1.0, memory_mb=512) as grader:
        yield grader


@pytest.fixture(scope="session")
def judge():
    """Judges an item here, without a worker: the labelled answers need no deadline."""
    from strict_answers.rules import Pending, grade_by_rules
    from strict_answers.symbolic import compare_parts

    def judge(response, gold, boxed=False):
        found = grade_by_rules(response, gold, boxed=boxed)
        if not isinstance(found, Pending):
            return found.correct, found.path
        members = [[list(part) for part in member] for member in found.members]
        return compare_parts(members, [list(part) for part in found.gold])[0], "symbolic"

    return judge
