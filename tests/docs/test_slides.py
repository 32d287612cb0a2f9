"""Slides of the 90-minute class: the plan fits the lessons, and the deck opens with pictures, notes and no request."""

import re
import shutil
from pathlib import Path

import jupytext
import nbformat
import pytest
from check import problems
from generate.slides import lessons_of, write_slides

ROOT = Path(__file__).parents[2]
PLAN = ROOT / "docs" / "teach" / "slides.toml"
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="40pt" height="30pt"><title>{}</title></svg>'


def as_if_executed(path):
    """A lesson with a small picture where it draws one."""
    notebook = jupytext.read(path)
    for cell in notebook.cells:
        if cell.cell_type == "code" and cell.source.startswith("# alt:"):
            cell.outputs = [nbformat.v4.new_output("display_data", {"image/svg+xml": SVG.format("drawn")})]
    return notebook


@pytest.fixture(scope="module")
def deck(tmp_path_factory):
    """A site with the slides and what they need of it."""
    site = tmp_path_factory.mktemp("site")
    (site / "index.html").touch()
    shutil.copytree(ROOT / "docs" / "assets", site / "assets")
    lessons = {n: as_if_executed(next((ROOT / "tutorials").glob(f"{n}_*.py"))) for n in lessons_of(PLAN)}
    return site, write_slides(PLAN, lessons, site / "teach" / "slides")


def test_every_slide_has_notes_and_every_picture_words(deck):
    site, count = deck
    page = (site / "teach" / "slides" / "index.html").read_text(encoding="utf-8")
    assert count > 10
    assert page.count('<aside class="notes">') == count
    assert problems(site) == []
    pictures = re.findall(r'<img alt="[^"]{40,}"[^>]*? src="([\d.]+svg)"', page)
    assert len(pictures) == page.count("<img ") >= 6
    assert all((site / "teach" / "slides" / picture).is_file() for picture in pictures)
    assert page.count("What to see.") >= 6  # of the lessons, in the notes
    assert "<!-- claim" not in page


def test_a_plan_that_asks_for_what_no_lesson_has_is_refused(deck, tmp_path):
    plan = tmp_path / "slides.toml"
    lesson = {"103": as_if_executed(next((ROOT / "tutorials").glob("103_*.py")))}
    for line, words in (('picture = "103.99"', "lesson 103 has"), ('exercise = "103.99"', "which no lesson has")):
        plan.write_text(f'[[slide]]\ntitle = "x"\nnotes = "x"\n{line}\n', encoding="utf-8")
        with pytest.raises(SystemExit, match=words):
            write_slides(plan, lesson, tmp_path / "deck")


def test_the_deck_runs_in_a_browser_and_asks_nobody(deck, browser, tmp_path):
    site, count = deck
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    troubles = []
    page.on("request", lambda r: None if r.url.startswith(("file:", "data:", "blob:")) else troubles.append(r.url))
    page.on("console", lambda m: troubles.append(m.text) if m.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: troubles.append(str(error)))
    page.goto((site / "teach" / "slides" / "index.html").as_uri())
    page.wait_for_selector(".reveal.ready")
    assert page.evaluate("Reveal.getTotalSlides()") == count
    page.keyboard.press("ArrowRight")
    assert page.evaluate("Reveal.getIndices().h") == 1
    assert page.locator("section.present img").is_visible()
    page.evaluate("Reveal.slide(2)")
    assert page.locator("section.present .katex-display").count() == 1
    assert page.locator(".katex-error").count() == 0
    assert "Minutes 10 to 25" in page.evaluate("Reveal.getSlideNotes()")
    page.close()
    assert not troubles
