"""Simplex explorer and rollout lab in Chromium: drags, keys, touch, numbers against pmdkit.theory, pictures."""

import os
import re
from pathlib import Path

import numpy as np
import pytest

from pmdkit import theory

PAGES = ("simplex", "rollouts")
BOTH = (("part", "pmd-part", theory.pmd_part), ("mean", "pmd-mean", theory.pmd_mean))


def close(got, want):
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-15)


def settle(page):
    """Wait until what was changed is drawn."""
    page.evaluate("() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")


def centre(locator):
    box = locator.bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def drag(page, handle, dx, dy, steps=6):
    handle.scroll_into_view_if_needed()
    x, y = centre(handle)
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + dx, y + dy, steps=steps)
    page.mouse.up()
    settle(page)


def simplex_problem(page, cell):
    """Policy, rewards and temperature as the page shows them."""
    pi = np.array([cell(page, f"p{i}/now") for i in (1, 2, 3)])
    rewards = page.eval_on_selector_all("[data-key^=reward-]", "nodes => nodes.map(n => Number(n.ariaValueNow))")
    return pi, np.array(rewards), float(page.input_value("[data-key=tau-field]"))


def check_simplex(page, cell, steps=1):
    """Every number of the table is pmdkit's."""
    pi, reward, tau = simplex_problem(page, cell)
    close(cell(page, "J/now"), pi @ reward)
    for short, _, solve in BOTH:
        now = pi
        for _ in range(steps):
            before, solution = now, solve(now, reward, tau)
            now = solution.probs / solution.probs.sum()
        close([cell(page, f"p{i}/{short}") for i in (1, 2, 3)], now)
        close(cell(page, f"J/{short}"), now @ reward)
        close(cell(page, f"kl/{short}"), theory.kl(now, before))
        close(cell(page, f"chi2/{short}"), theory.chi2(now, before))
        close(cell(page, f"weight/{short}"), solution.lam / (2 * tau) if short == "mean" else 0)
    return pi, reward, tau


STAR = "svg [aria-label^='policy']"


def test_the_simplex_starts_with_the_figure_s_numbers(open_page, cell):
    page = open_page("simplex")
    pi, reward, tau = check_simplex(page, cell)
    assert (pi.tolist(), reward.tolist(), tau) == ([0.6, 0.3, 0.1], [0.0, 0.7, 1.0], 0.2)


def test_dragging_the_policy_moves_it_with_the_pointer(open_page, cell):
    page = open_page("simplex")
    star = page.locator(STAR)
    before = np.array(centre(star))
    drag(page, star, 90, -70)
    np.testing.assert_allclose(np.array(centre(star)) - before, [90, -70], atol=1)
    pi, *_ = check_simplex(page, cell)
    assert pi[0] < 0.5
    assert pi[2] > 0.1


def test_dragged_out_of_the_triangle_the_policy_stays_inside(open_page, cell):
    page = open_page("simplex")
    drag(page, page.locator(STAR), -900, 500)
    pi, *_ = check_simplex(page, cell)
    assert pi.min() >= 0.005
    assert pi.sum() == pytest.approx(1, abs=1e-12)


def told_at_home(page):
    """The three mean rewards of the sentence under the simplex of the first page."""
    words = page.text_content(".ex-sentence")
    return [float(number) for number in re.findall(r"\d\.\d\d(?= to | with )", words)], words


@pytest.mark.parametrize("width", [1440, 390])
def test_the_first_page_shows_one_step_and_lets_it_be_dragged(open_page, width):
    """Its sentence has pmdkit's numbers; once the mean reward passes 0.7, only one action beats it."""
    page = open_page("home", width=width, height=900)
    pi, reward, tau = np.array([0.6, 0.3, 0.1]), np.array([0.0, 0.7, 1.0]), 0.2
    steps = [solve(pi, reward, tau).probs @ reward for _, _, solve in BOTH]
    told, words = told_at_home(page)
    assert told == [round(value, 2) for value in (pi @ reward, *steps)]
    assert "Two actions beat the mean" in words
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    drag(page, page.locator(STAR), 40, -400)
    told, words = told_at_home(page)
    assert told[0] > 0.7
    assert told[0] <= told[2] <= told[1]
    assert "One action beats the mean" in words


def test_rewards_are_dragged_and_the_temperature_slid(open_page, cell):
    page = open_page("simplex")
    drag(page, page.locator("[data-key=reward-1]"), 150, 0)
    page.locator("input[data-key=tau]").fill("100")
    settle(page)
    _, reward, tau = check_simplex(page, cell)
    assert reward[0] > 0.3
    assert tau == pytest.approx(0.005 * 1000 ** (100 / 400), rel=0.01)
    page.fill("[data-key=tau-field]", "0.7")
    settle(page)
    assert check_simplex(page, cell)[2] == 0.7


def test_everything_works_by_keyboard(open_page, cell):
    page = open_page("simplex")
    page.focus(STAR)
    for _ in range(3):
        page.keyboard.press("ArrowUp")
    page.keyboard.press("Shift+ArrowRight")
    page.focus("[data-key=reward-3]")
    page.keyboard.press("Home")
    page.focus("[data-key=reward-2]")
    page.keyboard.press("ArrowRight")
    page.focus("input[data-key=tau]")
    page.keyboard.press("ArrowLeft")
    settle(page)
    pi, reward, tau = check_simplex(page, cell)
    assert pi[2] > 0.1
    assert reward.tolist() == [0.0, 0.71, 0.0]
    assert tau < 0.2
    assert page.get_attribute(STAR, "aria-valuetext").startswith(f"action 1: {pi[0]:.2f}")


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


def test_steps_and_iterates(open_page, cell):
    page = open_page("simplex", reduced_motion="reduce")
    page.click("[data-key=step]")
    page.click("[data-key=step]")
    settle(page)
    check_simplex(page, cell, steps=3)
    page.click("[data-key=iterate]")  # with less motion, the end at once
    settle(page)
    check_simplex(page, cell, steps=12)
    assert page.is_disabled("[data-key=step]")
    page.click("[data-key=one]")
    settle(page)
    check_simplex(page, cell)


def test_iterating_is_seen_step_by_step(open_page, cell):
    page = open_page("simplex")
    page.click("[data-key=iterate]")
    page.wait_for_function("location.hash.includes('k=12')")
    check_simplex(page, cell, steps=12)


@pytest.mark.parametrize("show", ["kl", "chi2", "both", "mixed", "none"])
def test_level_lines_are_drawn_as_chosen(open_page, show):
    page = open_page("simplex")
    page.check(f"[data-key=show-{show}]", force=True)
    settle(page)
    solid, dotted = (page.locator(f".ex-level{kind}").count() for kind in (":not(.ex-dotted)", ".ex-dotted"))
    assert (solid, dotted) == {"kl": (5, 0), "chi2": (0, 5), "both": (5, 5), "mixed": (4, 0), "none": (0, 0)}[show]


@pytest.mark.parametrize("preset", ["figure", "small", "hard", "large"])
def test_presets_of_the_simplex(open_page, cell, preset):
    page = open_page("simplex", hash="tau=1&k=2")
    page.click(f"[data-key=preset-{preset}]")
    settle(page)
    check_simplex(page, cell, steps=12 if preset == "large" else 1)
    part, mean = cell(page, "J/part"), cell(page, "J/mean")
    assert (part - mean > 0.02) is (preset != "large")  # the presets show what they are named after


def check_rollouts(page, cell, s):
    """Truth, targets and expected error are pmdkit's; returns p, n and tau."""
    p, n, tau = (float(page.input_value(f"[data-key={key}-field]")) for key in ("p", "n", "tau"))
    reward = np.arange(int(n)) < s
    for short, method, _ in BOTH:
        truth, target = theory.binary(p, tau, method), theory.leave_one_out_targets(reward, tau, method)
        close(cell(page, f"truth-right/{short}"), truth.log_ratio_pos)
        close(cell(page, f"truth-wrong/{short}"), truth.log_ratio_neg)
        ideal = np.where(reward, truth.log_ratio_pos, truth.log_ratio_neg)
        close(cell(page, f"group/{short}"), ((target - ideal) ** 2).mean())
        for side, at, there in (("right", 0, s > 0), ("wrong", -1, s < n)):
            if there:
                np.testing.assert_allclose(cell(page, f"target-{side}/{short}"), target[at], atol=1e-12 / tau)
        close(cell(page, f"expected/{short}"), theory.target_error(p, int(n), tau, method).mean)
    return p, int(n), tau


BAR = "svg [aria-label^='right responses']"


def test_the_lab_starts_with_the_lone_success(open_page, cell):
    page = open_page("rollouts")
    assert check_rollouts(page, cell, 1) == (0.05, 16, 0.05)
    close([cell(page, f"target-right/{short}") for short, *_ in BOTH], 20)  # 1/tau, whatever the pass rate
    assert "lone success" in page.inner_text(".ex-sentence")


def test_the_bar_is_dragged_and_typed(open_page, cell):
    page = open_page("rollouts")
    bar = page.locator(BAR)
    width = page.locator("svg.ex-stage").first.bounding_box()["width"] - 12
    drag(page, bar, 5 * width / 16, 0)
    assert bar.get_attribute("aria-valuetext") == "6 of 16 right"
    check_rollouts(page, cell, 6)
    page.keyboard.press("Home")
    settle(page)
    check_rollouts(page, cell, 0)
    assert page.inner_text(".ex-sentence").startswith("A silent group")


def test_the_group_size_is_dragged_in_the_figure(open_page, cell):
    page = open_page("rollouts")
    knob = page.locator("svg [aria-label^='responses per prompt']")
    drag(page, knob, 120, 0)
    _, n, _ = check_rollouts(page, cell, 1)
    assert 32 < n < 256
    page.keyboard.press("ArrowLeft")
    settle(page)
    assert check_rollouts(page, cell, 1)[1] == n - 1


def test_the_built_figure_lies_on_the_exact_lines(open_page):
    """100 groups at ten sizes: each mean within 5 standard errors of the expectation, the errors from 4000 groups."""
    page = open_page("rollouts", hash="p=0.2&n=16&tau=0.1&seed=5", reduced_motion="reduce")
    page.click("[data-key=build]")
    settle(page)
    for short, method, _ in BOTH:
        points = page.eval_on_selector_all(
            f"[data-points={short}] > g",
            "all => all.map(g => [g.dataset.n, g.dataset.groups, g.dataset.mean].map(Number))",
        )
        assert [(n, groups) for n, groups, _ in points] == [(2**k, 100) for k in range(1, 11)]
        for n, _, mean in points:
            spread = theory.simulate_target_error(0.2, int(n), 0.1, method, 4000, 1).per_seed.std() / 10
            assert abs(mean - theory.target_error(0.2, int(n), 0.1, method).mean) < 5 * spread


def test_draws_add_up_and_another_temperature_starts_again(open_page, cell):
    page = open_page("rollouts")
    page.click("[data-key=batch]")
    page.click("[data-key=draw]")
    settle(page)
    assert page.inner_text("[data-cell='drawn/mean']").endswith("(101)")
    page.fill("[data-key=tau-field]", "0.1")
    settle(page)
    assert page.locator("[data-points=mean] > g").count() == 0
    assert np.isnan(cell(page, "drawn/mean"))


def test_the_same_address_gives_the_same_draws(open_page, cell):
    first, second = (open_page("rollouts", hash="p=0.3&n=32&tau=0.2&s=2&seed=77") for _ in range(2))
    for page in (first, second):
        page.click("[data-key=batch]")
        settle(page)
    assert cell(first, "drawn/part") == cell(second, "drawn/part")


@pytest.mark.parametrize("preset", ["lone", "silent", "half", "many", "warm"])
def test_presets_of_the_lab(open_page, cell, preset):
    page = open_page("rollouts", hash="p=0.7&n=5&tau=2&s=5")
    page.click(f"[data-key=preset-{preset}]")
    settle(page)
    check_rollouts(page, cell, {"lone": 1, "silent": 0, "half": 8, "many": 26, "warm": 1}[preset])


@pytest.mark.parametrize("name", PAGES)
def test_the_address_keeps_the_setting(open_page, cell, name):
    start, key = {"simplex": ("pi=0.2,0.5,0.3&r=0.1,0.2,0.9&tau=0.4&k=2&show=both", "J/mean"),
                  "rollouts": ("p=0.3&n=8&tau=0.2&s=3&seed=2", "group/part")}[name]  # fmt: skip
    page = open_page(name, hash=start)
    before = cell(page, key)
    page.fill("[data-key=tau-field]", "0.3")
    page.wait_for_function("location.hash.includes('tau=0.3')")
    after = cell(page, key)
    again = open_page(name, hash=page.evaluate("location.hash.slice(1)"))
    assert cell(again, key) == after != before


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(
    "nonsense", ["tau=banana&n=&pi=1,2", "tau=1e99&pi=5,-1,0&r=9,9,-9&k=1e9&p=7&n=1e9&s=-4&seed=x", "&&&=%ff"]
)
def test_an_address_with_nonsense_still_opens(open_page, name, nonsense):
    page = open_page(name, hash=nonsense)
    settle(page)
    values = page.eval_on_selector_all(".ex-readout [data-value]", "all => all.map(cell => cell.dataset.value)")
    assert len([v for v in values if v not in ("NaN", "undefined")]) > 8


@pytest.mark.parametrize("name", PAGES)
def test_without_javascript_the_picture_and_the_text_are_there(open_page, name):
    page = open_page(name, live=False)
    picture = page.locator(".explore-static img")
    assert picture.is_visible()
    assert picture.bounding_box()["width"] > 300
    assert len(picture.get_attribute("alt")) > 200
    assert page.locator("h2", has_text="What to try").is_visible()
    assert page.locator(".ex-body").count() == 0


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("width", "scheme"), [(1200, "default"), (1200, "slate"), (390, "default"), (390, "slate")])
def test_pictures_in_light_and_dark_wide_and_narrow(open_page, tmp_path, name, width, scheme):
    """A screenshot of each, kept under PMDKIT_SCREENSHOTS; nothing sticks out to the side."""
    page = open_page(name, width=width, scheme=scheme)
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".explore-static").is_hidden()
    folder = Path(os.environ.get("PMDKIT_SCREENSHOTS") or tmp_path)
    shot = page.locator(".explore").screenshot(path=folder / f"{name}-{width}-{scheme}.png")
    assert len(shot) > 20_000  # a blank page is far smaller


FRAMES = """async ([handle, frames]) => {
  const [node, slide] = [document.querySelector(handle), document.querySelector("input[data-key=tau]")];
  const { frames: timer } = document.querySelector(".explore");
  const press = (key) => node.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  timer.reset();
  for (let k = 0; k < frames; k++) {
    press(k % 40 < 20 ? "ArrowUp" : "ArrowDown");
    slide.value = 100 + (k % 150);
    slide.dispatchEvent(new Event("input"));
    await new Promise(requestAnimationFrame);
  }
  return timer.summary();
}"""


@pytest.mark.parametrize("name", PAGES)
def test_every_frame_is_drawn_while_everything_moves(open_page, name):
    """Handle and temperature change in every frame; how long a frame takes is measured by benchmarks/page_frames.py."""
    page = open_page(name)
    handle = STAR if name == "simplex" else "svg [aria-label^='responses per prompt']"
    assert page.evaluate(FRAMES, [handle, 60])["frames"] >= 59
