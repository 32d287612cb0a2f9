"""A real Tinker server, SkyRL, in the environment of `run.sh`; elsewhere nothing here is collected."""

import os
from importlib.util import find_spec

import pytest

if os.environ.get("PMDKIT_ADAPTERS") != "1" or find_spec("skyrl") is None:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items):
    """The libraries here warn about each other."""
    for item in items:
        if "tests/tinker" in str(item.path):
            item.add_marker(pytest.mark.filterwarnings("ignore"))
