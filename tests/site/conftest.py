"""The built site on a loopback port. `make docs` builds it; PMDKIT_SITE names another folder."""

import functools
import os
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SITE = Path(os.environ.get("PMDKIT_SITE", "site")).resolve()  # seen from where pytest is started


@pytest.fixture(scope="session")
def site(missing):
    """The folder of the built site."""
    if not (SITE / "index.html").is_file():
        missing(f"{SITE} holds no built site: run make docs.")
    return SITE


@pytest.fixture(scope="session")
def address(site):
    """Where the site is served."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            """Not into the output of the tests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()
    thread.join()
