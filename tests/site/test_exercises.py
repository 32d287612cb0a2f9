"""Exercises on a lesson's page, in Chromium with Pyodide's real core from npm, at the address that the page asks.

npm has no NumPy and no SciPy for Pyodide: stubs stand in for them, and for the judge, which counts what it is asked.
packages/pmdkit-course/tests/test_page.py runs the real judge in CPython; nothing here runs NumPy in a browser.
"""

import hashlib
import io
import json
import re
import shutil
import subprocess
import zipfile

import pytest

from tests.nightly import mostly_nightly

LESSON = "learn/lessons/103/"
INTEGRITY = "sha512-0YvXxEhfEdpLfb/XkM2BFAeMROq0iMUX2bzzH9pOttyMcWkwq+HbE5uyuGD82LN7y2q+SNvi/6V5JEsOlD2R1A=="
TYPES = {"mjs": "text/javascript", "json": "application/json", "wasm": "application/wasm"}
JUDGE = """
import numpy
asked = []
def packages(which, cell):
    return ["scipy"] if "scipy" in cell else []
def check(which, cell, send, stopped=None):
    asked.append(which)
    if stopped is None:
        send("clock", 1)
        try:
            exec(cell, {"send": send})
        except KeyboardInterrupt:
            stopped = ["itself"]
        send("clock", 0)
    return f"<p>{'✓ ' * ('right' in cell)}{which}, asked {len(asked)}, stopped with {stopped and list(stopped)}</p>"
"""


def archive(files):
    with zipfile.ZipFile(held := io.BytesIO(), "w") as written:
        for name, text in files.items():
            written.writestr(name, text)
    return held.getvalue()


@pytest.fixture(scope="session")
def core(site, missing, tmp_path_factory):
    """The files of Pyodide's core by name, with stub wheels under the names that the core's own list gives them."""
    pinned = re.search(r"pyodide/v([\d.]+)/full", (site / "javascripts" / "exercise-worker.js").read_text())[1]
    folder = tmp_path_factory.mktemp("pyodide")
    if shutil.which("npm") is None:
        missing("npm is not installed: apt-get install npm.")
    command = ["npm", "pack", f"pyodide@{pinned}", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        missing(f"npm did not give pyodide {pinned}: {done.stderr[-300:]}")
    (packed,) = json.loads(done.stdout)
    assert packed["integrity"] == INTEGRITY
    shutil.unpack_archive(folder / packed["filename"], folder)
    files = {path.name: path.read_bytes() for path in (folder / "package").iterdir()}
    lock = json.loads(files["pyodide-lock.json"])
    for name in ("numpy", "scipy"):
        entry = lock["packages"][name]
        about = {f"{name}-{entry['version']}.dist-info/{file}": "" for file in ("METADATA", "WHEEL", "RECORD")}
        files[entry["file_name"]] = archive({f"{name}/__init__.py": "", **about})
        entry["sha256"] = hashlib.sha256(files[entry["file_name"]]).hexdigest()
    return files | {"pyodide-lock.json": json.dumps(lock).encode()}


@pytest.fixture
def lesson(browser, address, core):
    """`lesson(lost)`: an open lesson, and the names asked of Pyodide's address, which does not have those in `lost`."""
    context = browser.new_context(viewport={"width": 390, "height": 900})

    def go(lost=""):
        asked = []

        def answer(route):
            name = route.request.url.split("/")[-1]
            asked.append(name)
            if name not in core or (lost and lost in name):
                return route.abort()
            headers = {"access-control-allow-origin": "*", "content-type": TYPES.get(name.split(".")[-1], "text/plain")}
            route.fulfill(body=core[name], headers=headers)

        context.route("https://cdn.jsdelivr.net/**", answer)
        context.route("**/judge.zip", lambda route: route.fulfill(body=archive({"pmdkit_course/page.py": JUDGE})))
        page = context.new_page()
        page.set_default_timeout(180_000)  # Python starts, on a machine that is busy
        page.goto(address + LESSON, wait_until="load")
        page.locator(".predict-skip").click()
        return page, asked

    yield go
    context.close()


def verdict(page, code, which=0):
    page.locator(".exercise textarea").nth(which).fill(code)
    page.locator(".exercise-check").nth(which).click()
    page.locator(".exercise").nth(which).locator(".exercise-check:enabled").wait_for()
    return page.locator(".exercise-verdict").nth(which).inner_text()


def test_an_answer_is_judged_where_it_is_written(lesson):
    """One Python, loaded when one begins to write, or when an exercise is in view where it was asked before; SciPy when
    it is needed. An endless loop is stopped."""
    page, asked = lesson()
    page.locator(".exercise").first.scroll_into_view_if_needed()
    page.wait_for_timeout(300)
    assert asked == []
    with page.expect_request("**/numpy*"):
        page.locator(".exercise textarea").first.focus()
    assert "pmd_mean_loss(log_ratio" in page.locator(".exercise textarea").first.input_value()
    assert verdict(page, "p = 1") == "103.0, asked 1, stopped with None"
    assert verdict(page, "p = 1", 1) == "103.1, asked 2, stopped with None"
    assert not [name for name in asked if "scipy" in name]
    assert verdict(page, "import scipy") == "103.0, asked 3, stopped with None"
    assert [name for name in asked if "scipy" in name]
    assert verdict(page, "while True:\n try: 1\n except: 2") == "103.0, asked 4, stopped with ['itself']"
    endless = "send('reply', 'one')\nsum(iter(int, 1))"  # in compiled code, which no signal reaches
    assert verdict(page, endless) == "103.0, asked 1, stopped with ['one']"
    page.reload(wait_until="load")
    page.locator(".predict-skip").click()
    with page.expect_request("**/numpy*"):
        page.locator(".exercise").last.scroll_into_view_if_needed()
    assert page.locator(".exercise textarea").first.input_value() == endless
    page.locator(".exercise-again").first.click()
    assert page.locator(".exercise textarea").first.input_value().endswith("return ...")


def open_rest(page):
    """Skip the predictions, if this visit has not done so before."""
    page.locator(".predict-skip").evaluate("button => button.hidden || button.click()")


def test_python_starts_once_for_all_lessons(lesson):
    """Links between lessons, and Back, keep the Python that runs; what else a page does works as on a new one."""
    page, asked = lesson()
    assert verdict(page, "p = 1") == "103.0, asked 1, stopped with None"
    page.wait_for_function("history.state?.y === scrollY")
    place = page.evaluate("scrollY")
    for way, number, which in ((".md-footer__link--next", "104", 2), (".md-footer__link--prev", "103", 3)):
        page.locator(way).evaluate("link => link.click()")
        page.wait_for_url(f"**/lessons/{number}/")
        assert page.locator("h1").inner_text().startswith(number)
        assert number in page.title()
        assert page.locator(".arithmatex").count() == page.locator(".arithmatex:has(.katex)").count() > 0
        assert page.evaluate("scrollY") == 0
        open_rest(page)
        assert verdict(page, "p = 1") == f"{number}.0, asked {which}, stopped with None"
    page.go_back()
    page.go_back()
    page.wait_for_function(f"scrollY === {place} && document.title.startsWith('103')")
    open_rest(page)
    assert verdict(page, "p = 1", 1) == "103.1, asked 4, stopped with None"
    assert asked.count("pyodide.asm.wasm") == 1
    page.go_forward()
    page.wait_for_function("document.title.startsWith('104')")
    page.reload(wait_until="load")
    page.go_back()  # no Python, and a history that is one document's
    page.wait_for_function("document.querySelector('h1')?.textContent.startsWith('103')")


@pytest.mark.parametrize("lost", mostly_nightly(["pyodide.mjs", "numpy", "scipy"], "numpy"))
def test_without_its_files_the_page_leads_to_the_notebook(lesson, lost):
    page, _ = lesson(lost)
    told = verdict(page, "import scipy")
    assert "cannot judge your answer. Run it in the notebook" in told
    assert page.locator("#at-home").inner_text().startswith("Run it yourself: jupyter lab tutorials/103")


def test_the_field_is_written_in_from_the_keyboard(lesson):
    """Tab indents, Enter keeps the indentation, and Escape lets Tab out."""
    page, _ = lesson()
    area = page.locator(".exercise textarea").first
    area.fill("def f():")
    area.press("Enter")
    page.keyboard.type("return [")
    area.press("Enter")
    area.press("Tab")
    assert area.input_value() == "def f():\n    return [\n        "
    area.press("Escape")
    area.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Check my answer"


def test_without_javascript_an_exercise_is_text(look):
    page = look(LESSON, live=False)
    assert page.locator(".exercise").count() == 5
    assert page.locator(".exercise textarea, .exercise button:visible").count() == 0
    assert page.get_by_text("def tau_for(p, eta):").is_visible()
