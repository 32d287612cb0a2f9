"""The built site in a real browser: it fetches nothing from elsewhere, says nothing on the console, and is accessible.

The pages looked at are one of each kind; every page is looked at for its links and its weight.
"""

import re
from itertools import product

import numpy as np
import pytest

from pmdkit import theory

from tests.nightly import mostly_nightly

pytestmark = pytest.mark.site

KINDS = [
    "", "learn/", "learn/lessons/103/", "learn/symbols/", "learn/metrics/", "explore/", "explore/simplex/",
    "explore/rollouts/", "explore/losses/", "explore/batch/", "paper/", "paper/annotated/", "paper/ledger/",
    "paper/figures/", "use/command-line/", "use/verbs/", "use/environments/", "use/gpu/",
    "use/adaptive-tau/", "teach/", "api/objectives/", "design/",
]  # fmt: skip
SCREENS = {"light": ("default", 1200), "dark": ("slate", 1200), "phone": ("default", 390)}
OFTEN = ["", "learn/lessons/103/", "explore/simplex/", "use/verbs/"]  # a change waits for them on every screen
LONG = ("paper/ledger/", "paper/annotated/", "api/objectives/")  # a minute or more each: at night


@pytest.fixture(scope="session")
def look(browser, address):
    """`look(page, screen)`: an open page, what it asked for elsewhere, and what it said on the console."""
    contexts = {}

    def go(path, screen):
        scheme, width = SCREENS[screen]
        if width not in contexts:
            contexts[width] = browser.new_context(viewport={"width": width, "height": 900})
        page = contexts[width].new_page()
        elsewhere, said = [], []
        page.on("request", lambda r: None if r.url.startswith((address, "data:", "blob:")) else elsewhere.append(r.url))
        page.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: said.append(str(error)))
        page.goto(address + path, wait_until="networkidle")
        page.add_style_tag(content="* { transition: none !important }")  # colours on their way have another contrast
        page.evaluate("scheme => { document.body.dataset.mdColorScheme = scheme }", scheme)
        return page, elsewhere, said

    return go


@pytest.mark.parametrize(
    ("path", "screen"),
    mostly_nightly(
        product(KINDS, SCREENS),
        *product(OFTEN, SCREENS),
        *((path, "light") for path in KINDS if path not in LONG),
    ),
)
def test_a_page_is_accessible_and_fetches_nothing_from_elsewhere(look, path, screen):
    from axe_playwright_python.sync_playwright import Axe

    page, elsewhere, said = look(path, screen)
    try:
        assert elsewhere == []
        assert said == []
        found = Axe().run(page).response["violations"]
        serious = [
            f"{v['id']}: {v['help']}: {v['nodes'][0]['html'][:200]} ({len(v['nodes'])} places)"
            for v in found
            if v["impact"] in ("serious", "critical")
        ]
        assert serious == []
        if screen == "phone":
            wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wide <= 1, "the page scrolls sideways"
    finally:
        page.close()


def test_equations_are_typeset(look):
    page, _, _ = look("learn/lessons/103/", "light")
    assert page.locator(".katex").count() > 5
    assert page.locator(".katex-error").count() == 0
    page.close()


def test_the_search_finds_a_word(look):
    page, elsewhere, _ = look("", "light")
    page.keyboard.press("f")
    page.keyboard.type("leave-one-out", delay=20)
    page.wait_for_selector(".md-search-result__item", timeout=120_000)
    assert elsewhere == []
    page.close()


def test_what_follows_predict_shows_once_it_is_answered(look):
    """The first answer stands, the reason shows, and the rest of the page with it; a reader may go on without one."""
    page, _, said = look("learn/lessons/103/", "phone")
    assert not page.locator("h2#run").is_visible()
    forms = page.locator("form.predict")
    for i in range(forms.count()):
        assert not forms.nth(i).locator(".predict-why").is_visible()
        forms.nth(i).locator("input").first.check()
        assert forms.nth(i).locator(".predict-why").is_visible()
    assert page.locator("h2#run").is_visible()
    page.reload(wait_until="networkidle")
    assert page.locator("h2#run").is_visible()
    page.evaluate("localStorage.clear()")
    page.reload(wait_until="networkidle")
    page.locator(".predict-skip").click()
    assert page.locator("h2#run").is_visible()
    assert said == []
    page.close()


def test_the_end_of_a_path_is_dragged_before_it_shows(look):
    """By the mouse in 101; the path and both ends show after the guess, and stay after a reload."""
    page, _, said = look("learn/lessons/101/", "phone")
    form = page.locator("form.predict[data-draw=path][data-ready]")
    form.scroll_into_view_if_needed()
    assert form.locator(".ex-mean[d]").count() == 0
    box = form.locator(".ex-handle").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] - 60, steps=6)
    page.mouse.up()
    form.locator(".predict-done").click()
    told = form.locator(".predict-said").inner_text()
    assert told.endswith("The path ends at 1.00, 0.00, 0.00.")
    assert not told.startswith("Your guess: 0.60, 0.30, 0.10")
    assert form.locator(".ex-mean[d]").count() == 1
    page.reload(wait_until="networkidle")
    assert form.locator(".predict-said").inner_text() == told
    page.evaluate("localStorage.clear()")
    assert said == []
    page.close()


@pytest.mark.parametrize("screen", ["light", "phone"])
def test_a_curve_is_drawn_before_it_shows(look, screen):
    """In 102, in one stroke or by the arrow keys. The distance that the page tells is that to pmdkit's own line."""
    page, _, said = look("learn/lessons/102/", screen)
    form = page.locator("form.predict[data-draw=curve][data-ready]")
    form.scroll_into_view_if_needed()
    points = form.locator("circle.predict-point")
    first = points.nth(0)
    first.focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    assert first.get_attribute("aria-valuetext") == "0.02"
    box = form.locator(".predict-ground").bounding_box()
    x, y = box["x"] + 13, box["y"] + box["height"] - 20
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 13, box["y"] + 13, steps=3)  # fast: columns between are filled in
    page.mouse.up()
    heights = [float(point.get_attribute("aria-valuenow")) for point in points.all()]
    assert heights == sorted(heights)
    assert heights[0] < 0.1 < 0.9 < heights[-1]
    form.locator(".predict-done").click()
    off = float(re.search(r"is (\d\.\d\d) away", form.locator(".predict-said").inner_text())[1])
    rates = np.geomspace(1e-4, 0.5, 9)
    assert off == pytest.approx(np.abs(heights - theory.binary(rates, 0.02, "pmd-mean").eta).mean(), abs=0.006)
    page.evaluate("localStorage.clear()")
    assert said == []
    page.close()


def test_the_first_picture_of_a_lesson_is_on_the_first_screen(site, browser, address):
    """Its top is above 800 px at 1440 x 900, in all lessons."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    tops = {}
    for lesson in sorted(path.parent.name for path in (site / "learn" / "lessons").glob("*/index.html")):
        page.goto(f"{address}learn/lessons/{lesson}/", wait_until="networkidle")
        tops[lesson] = page.locator("article img").first.bounding_box()["y"]
    context.close()
    assert len(tops) >= 15
    assert max(tops.values()) < 800, tops


@pytest.mark.nightly
def test_no_page_says_anything_on_the_console(look, site):
    """All pages: an equation that KaTeX cannot read stops those after it, and is told there alone."""
    told = {}
    for path in sorted(site.rglob("index.html")):
        name = path.parent.relative_to(site).as_posix()
        page, elsewhere, said = look("" if name == "." else f"{name}/", "light")
        if elsewhere or said:
            told[name] = [*elsewhere, *said]
        page.close()
    assert told == {}


def test_an_explorable_works_inside_a_lesson(look):
    page, elsewhere, said = look("learn/lessons/101/", "light")
    page.locator(".predict-skip").click()
    page.wait_for_selector('[data-explore="simplex"] svg')
    assert (elsewhere, said) == ([], [])
    page.close()


def test_a_counterexample_of_the_annotated_paper_moves(look):
    page, elsewhere, said = look("paper/annotated/", "light")
    page.evaluate("document.querySelectorAll('details.disagrees').forEach(fold => { fold.open = true })")
    host = page.locator('[data-explore="counter-text-error-of-order-one"]')
    error = host.locator('[data-cell="error/value"]')
    before = float(error.get_attribute("data-value"))
    host.locator("input[data-key=tau]").focus()
    for _ in range(5):
        page.keyboard.press("ArrowLeft")  # a smaller tau: a larger error
    page.wait_for_timeout(200)
    assert float(error.get_attribute("data-value")) > 1.05 * before
    assert page.locator("[data-counterexample]:not([data-ready=true])").count() == 0
    assert host.locator(".explore-static").is_hidden()
    assert (elsewhere, said) == ([], [])
    page.close()


def test_lessons_are_light(site):
    """A page of a lesson, pictures apart, stays under 120 kB."""
    pages = sorted((site / "learn" / "lessons").glob("*/index.html"))
    assert len(pages) >= 15
    heavy = {page.parent.name: page.stat().st_size for page in pages if page.stat().st_size > 120_000}
    assert heavy == {}


def stated(anchor, target):
    """Whether what follows the # is a setting of an explorable, or the theme's own."""
    return anchor.startswith("__") or "explore" in target.parts


def test_internal_links_lead_somewhere(site):
    """Every link and anchor within the site, those in raw HTML too, which the strict build does not see."""
    broken = []
    anchors = {}

    def anchors_of(page):
        if page not in anchors:
            anchors[page] = set(re.findall(r'\s(?:id|name)="([^"]+)"', page.read_text(encoding="utf-8")))
        return anchors[page]

    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue
        for link in set(re.findall(r'<a\s[^>]*?href="([^"]+)"', page.read_text(encoding="utf-8"))):
            if re.match(r"[a-z]+:|//|\?", link):
                continue
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                broken.append(f"{page.relative_to(site)}: {link}")
            elif (
                anchor and target.suffix == ".html" and not stated(anchor, target) and anchor not in anchors_of(target)
            ):
                broken.append(f"{page.relative_to(site)}: {link} (no such place)")
    assert broken == []
