"""Downloads: whether the Hugging Face hub can be reached, and where pmdkit keeps files made from them.

The hub's own library retries five times over half a minute.
"""

import os
import socket
from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from urllib.request import getproxies

if TYPE_CHECKING:
    from pmdkit.process_group import ProcessGroup, T

SECONDS = 3.0
cached_only = ContextVar("cached_only", default=False)


def fetch(work: "Callable[[], T]", process_group: "ProcessGroup") -> "T":
    """The result of work that may ask the hub. One process of each machine asks, then the others read its cache."""
    first = process_group.local_rank == 0

    def from_cache() -> "T":
        token = cached_only.set(True)
        try:
            return work()
        finally:
            cached_only.reset(token)

    found, read = process_group.run_in(first, work), process_group.run_in(not first, from_cache)
    return found if first else read  # type: ignore[return-value]


def local_only() -> bool:
    """Whether only cached files can be used: offline mode is set, or the hub does not answer."""
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    return cached_only.get() or offline or not reachable(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")


@cache
def reachable(endpoint: str) -> bool:
    """Whether a server listens at that address. Behind a proxy this cannot be checked: always True."""
    if getproxies():
        return True
    place = urlsplit(endpoint)
    port = place.port or (80 if place.scheme == "http" else 443)
    try:
        socket.create_connection((place.hostname or "", port), SECONDS).close()
    except (OSError, ValueError):  # ValueError: not a possible host name
        return False
    return True


def cache_folder() -> Path:
    """pmdkit's part of the user's cache: converted models, compiled code."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pmdkit"
