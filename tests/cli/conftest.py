"""What verbs print."""

import pytest


@pytest.fixture
def printed(call, capsys):
    """Run a command that ends well; returns what it printed on stdout."""

    def run(*arguments):
        assert call(*arguments) == 0
        return capsys.readouterr().out

    return run
