"""The real TRL, in an environment of its own (`run.sh`); elsewhere nothing here is collected."""

import importlib
import os
import signal
import subprocess
import sys
from importlib.util import find_spec

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
if os.environ.get("PMDKIT_ADAPTERS") != "1" or find_spec("trl") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items):
    """The libraries below warn about CPUs and about each other; what pmdkit warns of, a test names."""
    for item in items:
        if "tests/trl" in str(item.path):
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture
def launch(tmp_path):
    """`launch(command)`: start Python and wait; a failure shows what was printed, and no process is left."""

    def run(*command, seconds=900, **options):
        told = tmp_path / "told.txt"
        with open(told, "w") as file:
            launched = subprocess.Popen(
                [sys.executable, *command], stdout=file, stderr=file, start_new_session=True, **options
            )
            try:
                code = launched.wait(timeout=seconds)
            finally:
                if launched.poll() is None:
                    os.killpg(launched.pid, signal.SIGKILL)  # the launcher and its processes
        assert code == 0, told.read_text()[-3000:]

    return run


@pytest.fixture
def trainer_of():
    """`train_tiny.py` as a module, which a test may change."""
    from . import train_tiny

    yield train_tiny
    importlib.reload(train_tiny)
