"""These tests run in an environment of their own, see requirements.txt; elsewhere they are not collected."""

import sys
from importlib.util import find_spec
from pathlib import Path

collect_ignore_glob = [] if find_spec("verl") else ["test_*.py"]

# what verl 0.9.1 says while it is imported and configured on a machine without GPUs
FROM_VERL = (
    "ignore:.* engine is not available:UserWarning",
    "ignore:Disabled critic as algorithm:UserWarning",
    "ignore:set sequence parallel to false:UserWarning",
    "ignore::FutureWarning",
    "ignore::DeprecationWarning",
)


def pytest_configure(config):
    if not collect_ignore_glob:
        sys.path.append(str(Path(__file__).parent))
        for line in FROM_VERL:
            config.addinivalue_line("filterwarnings", line)
