"""Cost of the explorables' frames in headless Chromium: milliseconds of the page's thread while a number changes.

The pages are those of the built site, so run `make docs` first. The time is that of the thread, so other load on the
machine does not count.

Kept because rows page_frames/ hold that a page draws 60 frames a second.
"""

import functools
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from harness.rows import Measured
from playwright.sync_api import Page, sync_playwright

from pmdkit.objectives import OBJECTIVES

SITE = Path(__file__).parents[1] / "site"
CASES = {
    "simplex": ("simplex/", "tau", [*range(100, 250, 5)]),
    "losses": ("losses/#on=" + "+".join(OBJECTIVES), "tau-field", [round(0.05 * 1.05**k, 4) for k in range(40)]),
}
SWEEP = """async ([key, values]) => {
  const field = document.querySelector(`[data-key="${key}"]`);
  const { frames } = document.querySelector(".explore");
  const frame = () => new Promise((done) => requestAnimationFrame(done));
  await frame();
  frames.reset();
  for (const value of values) {
    field.value = value;
    field.dispatchEvent(new Event("input", { bubbles: true }));
    await frame();
  }
  await frame();
  return frames.script.length;
}"""


def measure(rounds: int) -> Iterator[Measured]:
    """Script, style, layout and paint per drawn frame; the first sweep of a page warms up its compiler."""
    if not (SITE / "explore").is_dir():
        raise FileNotFoundError(f"{SITE} holds no explore/; build the site first: make docs")
    chromium = os.environ.get("PMDKIT_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise FileNotFoundError("found no Chromium; install it, or put its path into PMDKIT_CHROMIUM")
    with served() as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        for name, (place, key, values) in CASES.items():
            page = browser.new_page()
            page.goto(address + place)
            page.wait_for_selector("[data-ready=true]")
            drawn_frames(page, key, values)
            found = [frame_cost(page, key, values) for _ in range(rounds)]
            yield Measured(f"page_frames/{name}", found, limit="16.7 ms: 60 frames a second")
            page.close()
        browser.close()


def frame_cost(page: Page, key: str, values: list[float]) -> float:
    """Milliseconds of the page's main thread per drawn frame while the field `key` runs through values."""
    protocol = page.context.new_cdp_session(page)
    protocol.send("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        metrics = protocol.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

    before = busy()
    drawn = drawn_frames(page, key, values)
    return 1e3 * (busy() - before) / drawn


@contextmanager
def served() -> Iterator[str]:
    """The built site on a loopback port; yields the address of its explorables."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: the output belongs to the benchmark."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE)))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/explore/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def drawn_frames(page: Page, key: str, values: list[float]) -> int:
    """How many frames drew while a number field went through values, one a frame."""
    return int(page.evaluate(SWEEP, [key, values]))
