"""The built site in a real browser: it fetches nothing from elsewhere, says nothing on the console, and is accessible.

The pages looked at are one of each kind; every page is looked at for its links.
"""

import re
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from pmdkit import theory
from tests.nightly import mostly_nightly

pytestmark = pytest.mark.site
DECKS = Path(__file__).parents[2] / "docs" / "teach" / "decks"

KINDS = [
    "", "learn/", "learn/lessons/103/", "learn/symbols/", "learn/metrics/", "explore/", "paper/", "paper/proofs/",
    "use/", "use/command-line/", "use/trainers/", "use/environments/", "use/plan/",
    "use/adaptive-tau/", "teach/", "api/objectives/", "design/",
]  # fmt: skip
SCREENS = {"light": ("default", 1200), "dark": ("slate", 1200), "phone": ("default", 390)}
OFTEN = ["", "learn/lessons/103/"]  # a change waits for them on every screen, and for these in the light:
LIGHT = ["learn/", "learn/symbols/", "explore/", "use/", "use/plan/", "teach/"]  # text, tables and scripts of each kind


@pytest.mark.parametrize(
    ("path", "screen"), mostly_nightly(product(KINDS, SCREENS), *product(OFTEN, SCREENS), *product(LIGHT, ["light"]))
)
def test_a_page_is_accessible_and_fits_its_window(look, path, screen):
    from axe_playwright_python.sync_playwright import Axe

    scheme, width = SCREENS[screen]
    page = look(path, width=width, scheme=scheme)
    found = Axe().run(page).response["violations"]
    serious = [
        f"{v['id']}: {v['help']}: {v['nodes'][0]['html'][:200]} ({len(v['nodes'])} places)"
        for v in found
        if v["impact"] in ("serious", "critical")
    ]
    assert serious == []
    if screen == "phone":
        assert page.evaluate("document.documentElement.scrollWidth") <= width + 1, "the page scrolls sideways"


def test_equations_are_typeset(look):
    page = look("learn/lessons/103/")
    assert page.locator(".katex").count() > 5
    assert page.locator(".katex-error").count() == 0


def test_what_follows_predict_is_dimmed_until_it_is_answered(look):
    """Its headings and its length show, and "Next" stands at its end. The first answer stands, the reason shows, and
    the rest of the page with it; a reader may go on without one."""
    page = look("learn/lessons/103/", width=390)
    dimmed = page.locator(".predict-later")
    heading = page.locator("h2#run.predict-later")
    assert heading.is_visible()
    assert heading.evaluate("element => element.inert")
    assert re.search(r"[\d,]+ words, \d+ pictures and [1-9] exercises", page.locator(".predict-length").inner_text())
    last, after = (page.locator(css).last.bounding_box()["y"] for css in (".predict-later", ".md-footer__link--next"))
    assert last < after
    forms = page.locator("form.predict")
    for i in range(forms.count()):
        forms.nth(i).locator("input").first.check()
        assert forms.nth(i).locator(".predict-why").is_visible()
    assert dimmed.count() == 0
    page.reload(wait_until="networkidle")
    assert dimmed.count() == 0
    page.evaluate("localStorage.clear()")
    page.reload(wait_until="networkidle")
    page.locator(".predict-skip").click()
    assert dimmed.count() == 0


def test_the_end_of_a_path_is_dragged_before_it_shows(look):
    """By the mouse in 101; the path and both ends show after the guess, and stay after a reload."""
    page = look("learn/lessons/101/", width=390)
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
    assert told.endswith("0.00, 0.00, 1.00.")
    assert form.locator(".ex-mean[d]").count() == 1
    page.reload(wait_until="networkidle")
    assert form.locator(".predict-said").inner_text() == told
    page.evaluate("localStorage.clear()")


@pytest.mark.parametrize("width", [1200, 390])
def test_a_curve_is_drawn_before_it_shows(look, width):
    """In 102, in one stroke or by the arrow keys. The distance that the page names is that to pmdkit's own line."""
    page = look("learn/lessons/102/", width=width)
    form = page.locator("form.predict[data-draw=curve][data-ready]")
    form.scroll_into_view_if_needed()
    points = form.locator("circle.predict-point")
    points.nth(0).focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowUp")
    assert points.nth(0).get_attribute("aria-valuetext") == "0.02"
    box = form.locator(".predict-ground").bounding_box()
    page.mouse.move(box["x"] + 13, box["y"] + box["height"] - 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] - 13, box["y"] + 13, steps=3)  # fast: columns between are filled in
    page.mouse.up()
    heights = [float(point.get_attribute("aria-valuenow")) for point in points.all()]
    assert heights == sorted(heights)
    form.locator(".predict-done").click()
    off = float(re.search(r"is (\d\.\d\d) away", form.locator(".predict-said").inner_text())[1])
    rates = np.geomspace(1e-4, 0.5, 9)
    assert off == pytest.approx(np.abs(heights - theory.binary(rates, 0.02, "pmd-mean").eta).mean(), abs=0.006)
    page.evaluate("localStorage.clear()")


def test_lessons_are_light_and_show_a_picture_on_the_first_screen(site, look):
    """Under 120 kB without pictures; at 1440 x 900 the top of the first picture is above 800 px, where it was run."""
    lessons = sorted((site / "learn" / "lessons").glob("*/index.html"))
    assert len(lessons) >= 15
    for path in lessons:
        assert path.stat().st_size < 120_000, path
        text = path.read_text(encoding="utf-8")
        if "Without its outputs" in text:
            continue
        assert "<img" in text.partition("<article")[2], path
        page = look(f"learn/lessons/{path.parent.name}/", width=1440, height=900)
        assert page.locator("article img").first.bounding_box()["y"] < 800, path


def test_every_page_has_its_tab_and_its_menu(site):
    """Off the menu too; slides and old addresses have none."""
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("index.html")}
    themed = {path: text for path, text in pages.items() if 'id="__config"' in text}
    assert len(themed) > 70
    assert [path for path, text in themed.items() if text.count("md-tabs__item--active") != 1] == []
    assert 'href="../anchor/"' in themed[site / "explore" / "atlas" / "index.html"].partition("<article")[0]


def test_the_map_of_the_lessons_ticks_what_this_browser_has_solved(look):
    page = look("learn/")
    assert page.locator(".lesson-map a").count() == 19
    assert page.locator(".lesson-next").inner_text().startswith("Start: 100, 50 minutes. All lessons")
    page.evaluate("[0, 1, 2, 3].forEach((k) => localStorage.setItem(`solved-100.${k}`, ''))")
    page.reload(wait_until="load")
    assert page.locator(".lesson-done strong").all_inner_texts() == ["100 ✓"]
    assert page.locator(".lesson-next").inner_text().startswith("Next: 101, 50 minutes. 4 exercises solved")
    page.evaluate("localStorage.clear()")


def test_a_page_of_the_api_is_at_most_300_kb(site):
    pages = {path: path.stat().st_size for path in (site / "api").glob("*/index.html")}
    assert {path: size for path, size in pages.items() if size > 300_000} == {}
    assert len(pages) >= 5


@pytest.mark.nightly
def test_no_page_says_anything_on_the_console(look, site):
    """All pages: an equation that KaTeX cannot read stops those after it, and is reported there alone."""
    for path in sorted(site.rglob("index.html")):
        name = path.parent.relative_to(site).as_posix()
        look("" if name == "." else f"{name}/").close()


def test_a_counterexample_to_the_paper_moves(look):
    page = look("paper/")
    page.evaluate("document.querySelectorAll('details.verdict-disagrees').forEach(fold => { fold.open = true })")
    host = page.locator('[data-explore="counter-prop-tgt-err-clean-a"]')
    ratio = host.locator('[data-cell="ratio/value"]')
    before = float(ratio.get_attribute("data-value"))
    host.locator("input[data-key=delta]").focus()
    for _ in range(10):
        page.keyboard.press("ArrowLeft")  # a smaller delta: the error is a larger multiple of the bound
    page.wait_for_timeout(200)
    assert float(ratio.get_attribute("data-value")) > 1.05 * before
    assert page.locator("[data-counterexample]:not([data-ready=true])").count() == 0


def test_the_rows_of_the_ledger_are_filtered(look):
    page = look("paper/")
    page.select_option("select[name=verdict]", "undecided")
    wanted = page.locator("details.verdict-undecided").count()
    assert page.locator("details.claim:visible").count() == wanted > 0
    assert page.locator("form.claims-filter output").inner_text().startswith(f"{wanted} of ")
    page.select_option("select[name=verdict]", "")
    page.select_option("select[name=kind]", "figure")
    page.select_option("select[name=section]", "experiments")
    assert page.locator("article h2:visible").all_inner_texts() == ["The experiments\u00b6"]
    picture = page.locator("img[src$='fig4-toy.svg']")
    picture.scroll_into_view_if_needed()
    page.wait_for_function("picture => picture.naturalWidth > 0", arg=picture.element_handle())
    page.fill("input[name=words]", "no row has these words")
    assert page.locator("details.claim:visible").count() == 0


OVER = """() => Reveal.getSlides().map((slide, i) => {
  Reveal.slide(i);
  const room = document.querySelector(".slides").getBoundingClientRect();
  const boxes = [...slide.querySelectorAll("h1, h2, p, li, img, pre, .katex-html, td")]
    .filter((each) => !each.closest("aside"))
    .map((each) => each.getBoundingClientRect());
  const beyond = (side) => Math.max(...boxes.map((box) => box[side])) - room[side];
  return [slide.innerText.slice(0, 40), Math.max(beyond("bottom"), beyond("right")), boxes.length];
})"""


@pytest.mark.parametrize("deck", sorted(path.stem for path in DECKS.glob("*.md")))
def test_nothing_of_a_slide_is_cut_off(look, deck):
    page = look(f"teach/slides/{deck}/index.html", width=1280, height=800)
    page.wait_for_selector(".reveal.ready")
    assert page.locator(".katex-error").count() == page.locator("img:not([alt])").count() == 0
    assert page.evaluate("[...document.images].every((picture) => picture.naturalWidth > 0)")
    found = page.evaluate(OVER)
    assert len(found) == page.locator("aside.notes").count()
    assert all(boxes for _, _, boxes in found)
    assert [slide for slide, over, _ in found if over > 1] == []
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("Reveal.getIndices().h") == 1


def test_internal_links_lead_somewhere(site):
    """Every link and anchor within the site, those in raw HTML too, which the strict build does not see."""
    broken, anchors = [], {}
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
                continue
            if target not in anchors:
                anchors[target] = set(re.findall(r'\s(?:id|name)="([^"]+)"', target.read_text(encoding="utf-8")))
            setting = anchor.startswith("__") or "explore" in target.parts  # the theme's own, or of an explorable
            if anchor and target.suffix == ".html" and not setting and anchor not in anchors[target]:
                broken.append(f"{page.relative_to(site)}: {link} (no such place)")
    assert broken == []
