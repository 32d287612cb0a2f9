"""One pool for the whole folder: a worker takes half a second to start."""

import pytest

from strict_answers import Grader


@pytest.fixture(scope="session")
def grader():
    with Grader(seconds=1.0, memory_mb=512) as grader:
        yield grader
