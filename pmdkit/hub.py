"""Whether the hub of models and data sets can be asked. Its own library asks five times, over half a minute."""

import os
import socket
from functools import cache
from urllib.parse import urlsplit
from urllib.request import getproxies

SECONDS = 3.0


def local_only() -> bool:
    """Whether only what is in the cache can be had: asked for, or because the hub does not answer."""
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in ("1", "ON", "YES", "TRUE")
    return offline or not reachable(os.environ.get("HF_ENDPOINT") or "https://huggingface.co")


@cache
def reachable(endpoint: str) -> bool:
    """Whether somebody listens at that address. Behind a proxy only the proxy knows: yes."""
    if getproxies():
        return True
    place = urlsplit(endpoint)
    port = place.port or (80 if place.scheme == "http" else 443)
    try:
        socket.create_connection((place.hostname or "", port), SECONDS).close()
    except (OSError, ValueError):  # ValueError: of a name that no host can have
        return False
    return True
