"""Biography of a prompt in Chromium: steps, objectives, reasons, a file of one's own, texts never read as HTML."""

import json
from pathlib import Path

import pytest

from .in_node import in_node

SHIPPED = Path(__file__).parents[2] / "docs" / "explore" / "biography" / "biography.json"
RUN = json.loads(SHIPPED.read_text(encoding="utf-8"))


def settle(page):
    """Wait until what was changed is drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def group_at(prompt, step):
    return next(group for group in RUN["prompts"][prompt]["groups"] if group["step"] == step)


def test_the_shipped_run_is_small_and_whole(node):
    """A real run of PMD-mean that learns: four prompts in 24 steps, sixteen responses each, at most 2 MB."""
    assert SHIPPED.stat().st_size < 500_000
    assert in_node(node, "const { problemOf } = await load('recorded.js'); return problemOf(given);", RUN) == ""
    assert [len(prompt["groups"]) for prompt in RUN["prompts"]] == [24] * 4
    right = [[sum(r > RUN["passed"] for r in g["reward"]) for g in prompt["groups"]] for prompt in RUN["prompts"]]
    assert all(sum(counts[-4:]) > sum(counts[:4]) for counts in right)
    told = group_at(0, 6)  # what the page says: wrong, and likelier after a push down
    assert told["reward"][0] == 0
    assert told["after"][0] == pytest.approx(0.18, abs=0.005)
    assert all(len(group["text"]) == 16 for prompt in RUN["prompts"] for group in prompt["groups"])


def test_steps_and_objectives_change_what_is_pushed(open_page, cell):
    page = open_page("biography", hash="prompt=3&step=2&at=old&objective=pmd-part&tau=0.05")
    group = group_at(2, 2)
    right = [i for i, reward in enumerate(group["reward"]) if reward > RUN["passed"]]
    assert page.locator(".bi-row").count() == 16
    assert page.locator(".bi-text").all_text_contents() == group["text"]
    assert {i for i in range(16) if cell(page, f"{i}/push") > 0} == set(right)
    assert f"{len(right)} of 16 responses are right" in page.text_content(".ex-sentence")
    part = [cell(page, f"{i}/push") for i in range(16)]
    page.select_option("[data-key=objective]", "pmd-mean")
    settle(page)
    mean = [cell(page, f"{i}/push") for i in range(16)]
    wrong = next(i for i in range(16) if i not in right)
    assert part[wrong] < 5 * mean[wrong] < 0  # one peer that is right is nearly the whole log-partition
    page.select_option("[data-key=objective]", "rloo")
    settle(page)
    assert [cell(page, f"{i}/push") for i in range(16)] == pytest.approx(mean)
    assert not page.locator("[data-key=tau]").is_visible()
    page.locator("[data-key=step]").focus()
    page.keyboard.press("ArrowRight")
    settle(page)
    assert page.locator(".bi-text").all_text_contents() == group_at(2, 3)["text"]


def test_a_response_says_why_it_is_pushed(open_page):
    page = open_page("biography", hash="prompt=1&step=4&at=after&objective=pmd-mean")
    assert page.locator("[data-key=row-0]").get_attribute("aria-expanded") == "true"  # one reason is there at once
    page.click("[data-key=row-1]")
    settle(page)
    assert "Its target is advantage / τ" in page.text_content("[data-key=why]")
    assert page.locator(".bi-row[aria-expanded=true]").count() == 1
    assert page.locator("[data-key=row-1]").get_attribute("aria-expanded") == "true"
    page.select_option("[data-key=objective]", "grpo")
    settle(page)
    assert "standard deviation" in page.text_content("[data-key=why]")
    page.check("[data-key=at-seen]", force=True)
    settle(page)
    assert "only sums were recorded" in page.text_content(".ex-sentence")


EVIL = "</script><img src=x onerror='document.body.dataset.owned=1'><b>bold</b>"


def test_texts_of_a_file_are_never_html(open_page, tmp_path):
    """In prompts, responses and the names of both; nothing runs, nothing is fetched, all of it is there to read."""
    data = json.loads(json.dumps(RUN))
    prompt = data["prompts"][0]
    prompt["name"] = prompt["text"] = data["run"] = EVIL
    prompt["groups"][0]["text"][0] = EVIL
    path = tmp_path / "biography.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    page = open_page("biography")
    page.set_input_files("[data-key=file]", path)
    page.wait_for_function("document.querySelector('.bi-prompt').textContent.includes('onerror')")
    settle(page)
    page.fill("[data-key=step-field]", "1")
    settle(page)
    assert page.locator(".bi-text").first.text_content() == EVIL
    assert page.locator(".explore img:visible, .explore b").count() == 0
    assert page.evaluate("document.body.dataset.owned") is None


@pytest.mark.parametrize(
    ("content", "words"), [("{", "JSON"), ('{"format": 2}', "no format 1"), ("null", "no format 1")]
)
def test_a_file_of_another_kind_is_refused_in_words(content, words, open_page, tmp_path):
    path = tmp_path / "wrong.json"
    path.write_text(content, encoding="utf-8")
    page = open_page("biography")
    page.set_input_files("[data-key=file]", path)
    page.wait_for_function("document.querySelector('[role=alert]').textContent !== ''")
    said = page.text_content("[role=alert]")
    assert said.startswith("wrong.json: ")
    assert words in said
    assert page.locator(".bi-row").count() == 16  # what was there stays


def test_a_hash_that_somebody_edited_is_brought_into_range(open_page):
    page = open_page("biography", hash="prompt=99&step=-7&tau=1e9&objective=<b>&at=x")
    assert page.locator(".bi-row").count() == 16
    assert page.input_value("[data-key=objective]") == "pmd-mean"
    assert page.input_value("[data-key=prompt]") == "4"


@pytest.mark.parametrize(("width", "scheme"), [(1200, "default"), (390, "slate")])
def test_the_page_fits_its_window(open_page, tmp_path, width, scheme):
    page = open_page("biography", width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=tmp_path / f"biography-{width}-{scheme}.png", full_page=True)


def test_without_javascript_there_is_a_picture(open_page):
    page = open_page("biography", live=False)
    assert page.locator(".explore-static img").is_visible()
