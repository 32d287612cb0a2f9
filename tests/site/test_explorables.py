"""The explorables in Chromium: after drags, keys and touch their numbers are those of Python; they fit a phone."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from pmdkit import theory
from tests.explore.by_torch import SHOWN, TOLERANCE, at
from tests.nightly import mostly_nightly

pytestmark = pytest.mark.site
PAGES = ("simplex", "rollouts", "anchor", "losses", "atlas", "biography", "train")
BOTH = (("part", "pmd-part", theory.pmd_part), ("mean", "pmd-mean", theory.pmd_mean))


def equal(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-15)


def settle(page):
    """Wait until what was changed is drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def centre(locator):
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page, handle, dx, dy):
    handle.scroll_into_view_if_needed()
    x, y = centre(handle)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + dx, y + dy, steps=6)
    page.mouse.up()
    settle(page)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), mostly_nightly([(1200, "slate"), (390, "default")], (390, "default")))
def test_the_page_fits_its_window(open_page, name, width, scheme):
    page = open_page(name, width=width, scheme=scheme)
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".explore-static").is_hidden()


@pytest.mark.parametrize("name", PAGES)
def test_without_javascript_there_is_a_picture_with_words(open_page, name):
    picture = open_page(name, live=False).locator(".explore-static img")
    assert picture.is_visible()
    assert len(picture.get_attribute("alt")) > 100


@pytest.mark.parametrize("name", PAGES)
def test_an_address_with_nonsense_still_opens(open_page, name):
    nonsense = (
        "tau=1e99&pi=5,-1,0&r=9,9,-9&k=1e9&p=7&n=&s=-4&gpus=-3&mean=1e9&model=x&on=nothing&prompt=99&step=-7&&=%ff"
    )
    page = open_page(name, hash=nonsense)
    settle(page)
    assert page.locator(".explore svg, .explore table").count() > 0


def check_simplex(page, cell, steps=1):
    """Every number of the table is pmdkit's; returns policy, rewards and temperature as the page shows them."""
    pi = np.array([cell(page, f"p{i}/now") for i in (1, 2, 3)])
    reward = np.array(page.eval_on_selector_all("[data-key^=reward-]", "all => all.map(n => Number(n.ariaValueNow))"))
    tau = float(page.input_value("[data-key=tau-field]"))
    equal(cell(page, "J/now"), pi @ reward)
    for short, _, solve in BOTH:
        now = pi
        for _ in range(steps):
            before, solution = now, solve(now, reward, tau)
            now = solution.probs / solution.probs.sum()
        equal([cell(page, f"p{i}/{short}") for i in (1, 2, 3)], now)
        equal(cell(page, f"J/{short}"), now @ reward)
        equal(cell(page, f"kl/{short}"), theory.kl(now, before))
        equal(cell(page, f"chi2/{short}"), theory.chi2(now, before))
        equal(cell(page, f"weight/{short}"), solution.lam / (2 * tau) if short == "mean" else 0)
    return pi, reward, tau


STAR = "svg [aria-label^='policy']"


def test_the_simplex_is_dragged(open_page, cell):
    """It starts with the figure's numbers; a drag out of the triangle leaves the policy inside."""
    page = open_page("simplex")
    pi, reward, tau = check_simplex(page, cell)
    assert (pi.tolist(), reward.tolist(), tau) == ([0.6, 0.3, 0.1], [0.0, 0.7, 1.0], 0.2)
    star = page.locator(STAR)
    before = np.array(centre(star))
    drag(page, star, 90, -70)
    np.testing.assert_allclose(np.array(centre(star)) - before, [90, -70], atol=1)
    drag(page, page.locator("[data-key=reward-1]"), 150, 0)
    assert check_simplex(page, cell)[1][0] > 0.3
    drag(page, star, -900, 500)
    assert check_simplex(page, cell)[0].min() >= 0.005


def test_a_finger_drags_too(open_page, cell):
    page = open_page("simplex", width=390, has_touch=True, is_mobile=True)
    star = page.locator(STAR)
    star.scroll_into_view_if_needed()
    x, y = centre(star)
    touch = page.context.new_cdp_session(page)
    for kind, dx in (("touchStart", 0), ("touchMove", 20), ("touchMove", 60), ("touchEnd", None)):
        points = [] if dx is None else [{"x": x + dx, "y": y - dx / 2}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    settle(page)
    assert np.hypot(*(np.array(centre(star)) - [x + 60, y - 30])) < 2
    check_simplex(page, cell)


def test_the_simplex_iterates_and_the_address_brings_it_back(open_page, cell):
    page = open_page("simplex", reduced_motion="reduce")
    page.click("[data-key=step]")
    page.click("[data-key=step]")
    settle(page)
    check_simplex(page, cell, steps=3)
    page.click("[data-key=iterate]")  # with less motion, the end at once
    page.wait_for_function("location.hash.includes('k=12')")
    check_simplex(page, cell, steps=12)
    again = open_page("simplex", hash=page.evaluate("location.hash.slice(1)"), reduced_motion="reduce")
    equal(cell(again, "J/mean"), cell(page, "J/mean"))


def test_the_rollout_lab_shows_the_theory_while_its_bar_is_dragged(open_page, cell):
    page = open_page("rollouts")
    bar = page.locator("svg [aria-label^='right responses']")
    width = page.locator("svg.ex-stage").first.bounding_box()["width"] - 12
    for s in (1, 6):
        if s == 6:
            drag(page, bar, 5 * width / 16, 0)
        p, n, tau = (float(page.input_value(f"[data-key={key}-field]")) for key in ("p", "n", "tau"))
        reward = np.arange(int(n)) < s
        for short, method, _ in BOTH:
            truth, target = theory.binary(p, tau, method), theory.leave_one_out_targets(reward, tau, method)
            ideal = np.where(reward, truth.log_ratio_pos, truth.log_ratio_neg)
            equal(cell(page, f"truth-right/{short}"), truth.log_ratio_pos)
            equal(cell(page, f"group/{short}"), ((target - ideal) ** 2).mean())
            equal(cell(page, f"target-right/{short}"), target[0])
            equal(cell(page, f"expected/{short}"), theory.target_error(p, int(n), tau, method).mean)
    page.fill("[data-key=u-field]", "0.25")
    settle(page)
    modes = page.eval_on_selector_all("[data-mode]", "all => all.map(({ dataset }) => [+dataset.pace, +dataset.age])")
    equal(modes, [[1.25, 0], [1, 1], [1, 0.25]])


def test_the_anchor_law_is_dragged(open_page, cell):
    page = open_page("anchor", hash="n=4&p=0.1&M=5&rate=0.3&tau=0.05")
    drag(page, page.locator("[data-key=tau-handle]"), 60, 0)
    tau = float(page.input_value("[data-key=tau-field]"))
    assert tau > 0.06
    c = theory.anchor(0.1, tau, 4)
    equal(cell(page, "net/part"), tau - c)
    equal(cell(page, "factor/part"), theory.anchor_growth(c, tau, 0.3, 1.0, 5))
    equal(cell(page, "factor/mean"), theory.anchor_growth(0.0, tau, 0.3, 1.0, 5))
    equal(float(page.get_attribute(".ex-note", "data-value")), theory.anchor_threshold(0.1, 4))


ROW = {"advantage": 0.5, "tau": 0.25, "length": 1, "group": 16, "anchor": 0.0}


def test_the_loss_landscape_shows_the_numbers_of_torch(open_page, cell):
    """Of all twelve, turned on by keyboard, where the probe was dragged to."""
    page = open_page("losses")
    for name in SHOWN:
        key = page.locator(f'[data-key="legend-{name}"]')
        if key.get_attribute("aria-pressed") == "false":
            key.focus()
            page.keyboard.press("Space")
    drag(page, page.locator('[data-key="probe"]'), 60, 0)
    s = float(page.get_attribute('[data-key="probe"]', "aria-valuenow"))
    assert s > 1.2
    assert page.locator("path[data-curve]").count() == 2 * len(SHOWN)
    for name in SHOWN:
        loss, slope = at(name, ROW, {}, s)
        for key, wanted in (("advantage", ROW["advantage"]), ("loss", loss), ("push", -slope)):
            np.testing.assert_allclose(cell(page, f"{name}/{key}"), wanted, rtol=TOLERANCE, atol=1e-12, err_msg=name)


RUN = json.loads((Path(__file__).parents[2] / "docs/explore/biography/biography.json").read_text(encoding="utf-8"))
EVIL = "</script><img src=x onerror='document.body.dataset.owned=1'><b>bold</b>"


def test_a_biography_shows_a_recorded_step_under_another_objective(open_page, cell):
    page = open_page("biography", hash="prompt=3&step=1&at=old&objective=pmd-part&tau=0.05")
    group = next(group for group in RUN["prompts"][2]["groups"] if group["step"] == 1)
    right = {i for i, reward in enumerate(group["reward"]) if reward > RUN["passed"]}
    assert page.locator(".bi-text").all_text_contents() == group["text"]
    assert {i for i in range(16) if cell(page, f"{i}/push") > 0} == right
    part = [cell(page, f"{i}/push") for i in range(16)]
    page.select_option("[data-key=objective]", "pmd-mean")
    settle(page)
    wrong = next(i for i in range(16) if i not in right)
    assert part[wrong] < 5 * cell(page, f"{wrong}/push") < 0  # one right peer is nearly the whole log-partition


@pytest.mark.parametrize("width", [1440, 390])
def test_the_first_page_shows_sixteen_answers_and_whom_each_objective_pushes(open_page, width):
    """A step is typed; PMD-part spends more of its push on the wrong answers than PMD-mean."""
    page = open_page("home", width=width, height=900)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.fill("[data-key=step-field]", "1")
    settle(page)
    group = RUN["prompts"][1]["groups"][0]
    assert page.locator(".bi-text").all_text_contents() == [text.removesuffix("<|im_end|>") for text in group["text"]]
    assert page.locator(".bi-right").count() == sum(group["reward"]) > 0

    def downward():
        pushes = page.eval_on_selector_all("[data-cell$='/push']", "all => all.map(each => Number(each.dataset.value))")
        return sum(push for push in pushes if push < 0) / sum(map(abs, pushes))

    mean = downward()
    page.locator("[data-explore=home] [data-key=objective-pmd-part]").check(force=True)
    settle(page)
    assert downward() < mean - 0.2


def test_texts_of_a_file_are_never_html(open_page, tmp_path):
    """In prompts, responses and the names of both; nothing runs, nothing is fetched, all of it is there to read."""
    data = json.loads(json.dumps(RUN))
    prompt = data["prompts"][0]
    prompt["name"] = prompt["text"] = data["run"] = prompt["groups"][0]["text"][0] = EVIL
    path = tmp_path / "biography.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    page = open_page("biography")
    page.set_input_files("[data-key=file]", path)
    page.wait_for_function("document.querySelector('.bi-prompt').textContent.includes('onerror')")
    page.fill("[data-key=step-field]", "1")
    settle(page)
    assert page.locator(".bi-text").first.text_content() == EVIL
    assert page.locator(".explore img:visible, .explore b").count() == 0
    assert page.evaluate("document.body.dataset.owned") is None


def test_the_atlas_names_the_line_under_the_pointer_and_a_click_opens_its_page(open_page):
    page = open_page("atlas", width=1440, height=900)
    assert page.locator(".at-name").all_text_contents() == ["PMD-part", "PMD-mean", "GRPO"]
    assert centre(page.locator(".at-card"))[1] < 700  # what is pointed at is told on the first screen
    x, y = page.evaluate(
        """() => {
          const path = document.querySelector("[data-line=sppo]");
          const area = path.ownerSVGElement.getBoundingClientRect();
          const point = path.getPointAtLength(path.getTotalLength() * 0.3);
          return [area.x + point.x, area.y + point.y];
        }"""
    )
    page.mouse.move(x, y)
    card = page.locator(".at-card")
    assert card.locator("a").first.inner_text() == "sppo"
    assert card.locator(".katex").count() == 1
    page.mouse.click(x, y)
    page.wait_for_url("**/api/objectives/#pmdkit.objectives.contrib.sppo.SPPO")
    assert page.locator("[id='pmdkit.objectives.contrib.sppo.SPPO']").count() == 1
    page.go_back()
    page.locator("[data-loss=tb]").focus()
    assert page.locator(".at-card a").first.inner_text() == "tb"


FAINT = """(charts) => {
  const pixel = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
  const paper = getComputedStyle(document.body).backgroundColor;
  const light = (...coats) => {
    for (const [fillStyle, globalAlpha = 1, filter = "none", globalCompositeOperation = "source-over"] of [[paper], ...coats]) {
      Object.assign(pixel, { fillStyle, globalAlpha, filter, globalCompositeOperation });
      pixel.fillRect(0, 0, 1, 1);
    }
    const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = [...pixel.getImageData(0, 0, 1, 1).data].map((v) => linear(v / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b + 0.05;
  };
  const ratio = (a, b) => Math.max(a, b) / Math.min(a, b);
  const seen = [];
  for (const node of document.querySelectorAll(".explore svg :is(path, line, circle, rect)")) {
    const { width, height } = node.getBBox();
    if (node.closest("defs, .ex-axis, .ex-hit, .ex-ring, .ex-rail, .an-away") || width + height === 0) continue;
    const style = getComputedStyle(node);
    let alpha = 1;
    for (let one = node; one.tagName !== "svg"; one = one.parentElement) alpha *= getComputedStyle(one).opacity;
    const coats = [[style.stroke, alpha * style.strokeOpacity]];
    if (width * height > 0) coats.push([style.fill, alpha * style.fillOpacity]);
    const drawn = coats.filter(([colour]) => colour !== "none").map((coat) => ratio(light(coat), light()));
    if (drawn.length) seen.push([node.getAttribute("class"), Math.max(...drawn)]); // a rim and its dot are one mark
  }
  const flat = [["details.claim > summary", "::before"], [".bi-up, .bi-down", null]];
  for (const [css, part] of flat) {
    for (const node of document.querySelectorAll(css)) {
      seen.push([node.className || css, ratio(light([getComputedStyle(node, part).backgroundColor]), light())]);
    }
  }
  const { filter, mixBlendMode } = getComputedStyle(document.querySelector("article img"));
  for (const colour of charts) {
    const [mark, ground] = [colour, "#ffffff"].map((one) => light([one, 1, filter, mixBlendMode]));
    seen.push([`chart ${colour}`, ratio(mark, ground)]);
  }
  return [seen.length, [...new Set(seen.filter(([, value]) => value < 3).map(([name, value]) => `${name} ${value.toFixed(2)}`))]];
}"""


@pytest.mark.parametrize("scheme", ["default", "slate"])
def test_lines_and_marks_have_a_contrast_of_three_to_one_with_the_page(open_page, look, site, scheme):
    """In explorables, their legends, the verdicts of the ledger, and the charts, whose colours are all but greys.

    Left out: grid, handles' areas, a slider's rail, the ground of the anchor law, whose edge is where lines cross, and
    "Train one", which draws nothing before Play.
    """
    charts = set()
    for path in site.rglob("*.svg"):
        for style in re.findall(r'style="([^"]*)"', path.read_text(encoding="utf-8")):
            charts |= {each for each in re.findall(r"#[0-9a-f]{6}", style) if "opacity" not in style}
    charts = [each for each in charts if np.ptp([int(each[i : i + 2], 16) for i in (1, 3, 5)]) > 30]
    found = {}
    for name in {*PAGES, "home", "paper"} - {"train"}:
        page = open_page(name, scheme=scheme) if name != "paper" else look("paper/", scheme=scheme)
        settle(page)
        count, found[name] = page.evaluate(FAINT, charts if name == "simplex" else [])
        assert count > 5, name
    assert {name: faint for name, faint in found.items() if faint} == {}


def steps(page, count):
    page.wait_for_function("n => document.querySelector('[data-cell=\"step/step\"]').dataset.value >= n", arg=count)


def test_a_transformer_learns_in_the_page_and_mistakes_cost_nothing(open_page, cell):
    """Nothing runs before Play. A formula or a worker that fails gets a sentence, and what was learned stays."""
    page = open_page("train")
    settle(page)
    assert not any("train" in worker.url for worker in page.workers)
    assert page.locator(".tr-grid").count() == 0
    page.click("[data-key=play]")
    steps(page, 3)
    page.click("[data-key=play]")
    page.locator("[data-key=play]:text('Play')").wait_for()
    step, rate = cell(page, "step/step"), cell(page, "step/rate")
    assert 0.085 < rate < 0.99
    assert page.locator(".tr-right").count() + page.locator(".tr-wrong").count() == 100
    page.locator("[data-key=objective-own]").check(force=True)
    for formula, wanted in (("A -", "its end where"), ("log(-1)*s", "Your loss is NaN")):
        page.fill("[data-key=formula]", formula)
        page.press("[data-key=formula]", "Enter")
        page.click("[data-key=step]")
        page.locator(f".ex-sentence:has-text('{wanted}')").wait_for()
        assert (cell(page, "step/step"), cell(page, "step/rate")) == (step, rate)
    page.fill("[data-key=formula]", "-A*s")
    page.press("[data-key=formula]", "Enter")
    page.click("[data-key=step]")
    steps(page, step + 1)
    page.locator("[data-prompt='73']").focus()
    page.keyboard.press("ArrowRight")
    page.locator("[data-prompt='74'][aria-selected=true]").wait_for()
    page.wait_for_function("location.hash.includes('cell=74') && location.hash.includes('objective=own')")
    again = open_page("train")
    gone = {"body": "throw new Error('gone')", "content_type": "text/javascript"}
    again.route("**/train/worker.js", lambda route: route.fulfill(**gone))
    again.click("[data-key=play]")
    again.locator(".ex-sentence:has-text('The worker stopped')").wait_for()
    again.unroute("**/train/worker.js")
    again.click("[data-key=play]")
    steps(again, 1)
