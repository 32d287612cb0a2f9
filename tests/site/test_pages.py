"""The built site in a real browser: it fetches nothing from elsewhere, says nothing on the console, and is accessible.

The pages looked at are one of each kind; every page is looked at for its links and its weight.
"""

import re
from itertools import product

import pytest

from ..conftest import mostly_nightly

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
    page, _, said = look("learn/lessons/102/", "phone")
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


def test_an_explorable_works_inside_a_lesson(look):
    page, elsewhere, said = look("learn/lessons/101/", "light")
    page.locator(".predict-skip").click()
    page.wait_for_selector('[data-explore="simplex"] svg')
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
