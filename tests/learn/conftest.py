"""What the tests of the exercises share: progress is kept in a folder of the test's own."""

import pytest

from pmdkit.cli import main


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory, monkeypatch):
    """The learner's record is not the tester's. Elsewhere than the working folder, which some tests fill."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder


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
