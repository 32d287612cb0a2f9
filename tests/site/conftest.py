"""The built site on a loopback port, in one Chromium. `make docs` builds it; PMDKIT_SITE names another folder."""

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


@pytest.fixture(scope="session")
def contexts(browser):
    """One browser context per kind of screen: its pages share the cache of the files."""
    kept = {}

    def get(**options):
        key = repr(sorted(options.items()))
        if key not in kept:
            kept[key] = browser.new_context(**options)
        return kept[key]

    return get


@pytest.fixture
def look(contexts, address):
    """`look("explore/simplex/", hash="tau=0.2", width=390, scheme="slate")`: an open page of the site.

    After the test: no request to anywhere else, no error in the console.
    """
    opened, troubles = [], []

    def watch(request):
        if not request.url.startswith((address, "data:", "blob:")):
            troubles.append(f"request for {request.url}")

    def go(path, hash="", width=1200, height=1000, scheme="default", live=True, until="networkidle", **options):
        context = contexts(viewport={"width": width, "height": height}, java_script_enabled=live, **options)
        page = context.new_page()
        opened.append(page)
        page.set_default_timeout(30_000)
        page.on("request", watch)
        page.on("console", lambda told: troubles.append(told.text) if told.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(address + path + (f"#{hash}" if hash else ""), wait_until=until)
        if live:
            page.add_style_tag(content="* { transition: none !important }")  # colours on their way: another contrast
            page.evaluate("scheme => { document.body.dataset.mdColorScheme = scheme }", scheme)
        return page

    yield go
    for page in opened:
        page.close()
    assert not troubles, f"a page asked for something else than its own files, or complained: {troubles}"


@pytest.fixture
def open_page(look):
    """`open_page("simplex", hash="tau=0.2")`: an explorable, live."""

    def go(name, live=True, **options):
        page = look("" if name == "home" else f"explore/{name}/", live=live, until="load", **options)
        if live:
            page.wait_for_selector("[data-ready=true]")  # sooner than half a second without requests
        return page

    return go


@pytest.fixture(scope="session")
def cell():
    """A number of the readout with all its digits: `cell(page, "J/mean")`."""
    return lambda page, name: float(page.get_attribute(f'[data-cell="{name}"]', "data-value"))
