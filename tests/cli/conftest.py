"""What the tests of the command line share."""

import pytest

from pmdkit.cli import main


@pytest.fixture
def call():
    """Run a command in this process; returns its exit code."""

    def run(*arguments):
        try:
            main([str(a) for a in arguments])
        except SystemExit as leave:
            return leave.code or 0
        return 0

    return run
