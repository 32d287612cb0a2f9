"""Headless Chromium for the explorables: pages of docs/explore and the first page, with the theme, served locally.

PMDKIT_SITE=site tests a built site. A request to anywhere but the loopback address is refused, and the test fails.
"""

import functools
import os
import shutil
import sys
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "docs"))


@pytest.fixture(scope="session")
def pages(tmp_path_factory):
    """`pages(name)`: the address of a page of explore/, rendered when first asked for; "home" is the first page."""
    built = os.environ.get("PMDKIT_SITE")
    if built and not Path(built, "explore").is_dir():
        pytest.fail(f"PMDKIT_SITE={built} holds no explore/; expected a built site: run make docs first")
    folder = Path(built) if built else lay_out(tmp_path_factory.mktemp("site"))

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            """Not into the output of the tests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def address(name: str) -> str:
        place = "" if name == "home" else f"explore/{name}/"
        if not (folder / place / "index.html").exists() and not built:
            render(folder, name, place)
        return f"http://127.0.0.1:{server.server_port}/{place}"

    yield address
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
def open_page(contexts, pages):
    """`open_page("simplex", hash="tau=0.2", width=390, scheme="slate")`: a page of explore/, loaded and live.

    After the test: no error in the console, no request to anywhere else.
    """
    opened, troubles = [], []

    def watch(request):
        if not request.url.startswith(("http://127.0.0.1:", "data:", "blob:")):
            troubles.append(f"request for {request.url}")

    def go(name, hash="", width=1200, height=1000, scheme="default", live=True, **options):
        context = contexts(viewport={"width": width, "height": height}, java_script_enabled=live, **options)
        page = context.new_page()
        opened.append(page)
        page.set_default_timeout(20_000)
        page.on("request", watch)
        page.on("console", lambda told: troubles.append(told.text) if told.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.goto(pages(name) + (f"#{hash}" if hash else ""))
        if live:
            page.wait_for_selector("[data-ready=true]")
            page.evaluate("scheme => document.body.dataset.mdColorScheme = scheme", scheme)
        return page

    yield go
    for page in opened:
        page.close()
    assert not troubles, f"the page asked for something else than its own files, or complained: {troubles}"


@pytest.fixture(scope="session")
def cell():
    """A number of the readout with all its digits: `cell(page, "J/mean")`."""
    return lambda page, name: float(page.get_attribute(f'[data-cell="{name}"]', "data-value"))


PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{name}</title>
<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="icon" href="data:,">
{styles}</head><body dir="ltr" data-md-color-scheme="default" data-md-color-primary="custom"
data-md-color-accent="custom"><main class="md-main"><div class="md-main__inner md-grid"><div class="md-content">
<article class="md-content__inner md-typeset">{body}</article></div></div></main></body></html>"""
SHEET = '<link rel="stylesheet" href="{}{}">'
STYLES = ("main.css", "palette.css", "stylesheets/pmdkit.css", "stylesheets/explore.css")


def lay_out(folder: Path) -> Path:
    """A docs folder with the scripts and styles of the explorables and the theme's; pages come later."""
    import material

    docs = folder / "docs"
    generated = shutil.ignore_patterns(".static", "static.svg", "tables.js")
    shutil.copytree(ROOT / "docs" / "explore", docs / "explore", ignore=generated)
    shutil.copytree(ROOT / "docs" / "stylesheets", docs / "stylesheets")
    shutil.copy(ROOT / "docs" / "index.md", docs)
    theme = Path(material.__file__).parent / "templates" / "assets" / "stylesheets"
    for kind in ("main", "palette"):
        for path in theme.glob(f"{kind}.*.css"):
            shutil.copy(path, docs / f"{kind}.css")
    return docs


def render(docs: Path, name: str, place: str) -> None:
    """A page as the site shows it, without its navigation: theme, styles, generated picture and tables."""
    from generate.explore_figures import write_explore_figures
    from markdown import Markdown

    write_explore_figures(docs / "explore", [name])
    extensions = ["admonition", "attr_list", "md_in_html", "tables", "pymdownx.arithmatex", "pymdownx.details",
                  "pymdownx.snippets", "pymdownx.superfences"]  # fmt: skip
    snippets = {"base_path": [str(docs.parent)], "check_paths": True}
    reader = Markdown(
        extensions=extensions,
        extension_configs={"pymdownx.arithmatex": {"generic": True}, "pymdownx.snippets": snippets},
    )
    text = (docs / place / "index.md").read_text(encoding="utf-8")
    if text.startswith("---\n"):
        text = text.split("\n---\n", 1)[1]
    styles = "".join(SHEET.format("../" * place.count("/"), sheet) for sheet in STYLES)
    page = PAGE.format(name=name, styles=styles, body=reader.convert(text))
    (docs / place / "index.html").write_text(page, encoding="utf-8")
