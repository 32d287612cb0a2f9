"""What the tests of the exercises share: progress is kept in a folder of the test's own."""

import pytest


@pytest.fixture(autouse=True)
def own_state(tmp_path_factory, monkeypatch):
    """The learner's record is not the tester's. Elsewhere than the working folder, which some tests fill."""
    folder = tmp_path_factory.mktemp("state")
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder
