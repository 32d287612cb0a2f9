"""The loss landscape in a headless Chromium: drags, keys, touch, numbers against torch, pictures."""

import numpy as np
import pytest
import torch

from pmdkit.objectives import OBJECTIVES, Groups

from .by_torch import SHOWN, TOLERANCE, at
from .frames import drawn_frames

SAME = {"advantage": 0.5, "tau": 0.25, "length": 1, "group": 16, "anchor": 0.0}


def settle(page):
    """Wait until the frame after the last change was drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))")


def check_row(page, cell, name, row, s, options=None):
    """Advantage, loss and push of one line of the table are those of torch."""
    loss, slope = at(name, row, options or {}, s)
    for key, wanted in (("advantage", row["advantage"]), ("loss", loss), ("push", -slope)):
        np.testing.assert_allclose(cell(page, f"{name}/{key}"), wanted, rtol=TOLERANCE, atol=1e-12, err_msg=name)


def test_dragging_the_probe_shows_the_numbers_of_torch(open_page, cell):
    """Dragged by the mouse and moved by arrow keys; the table follows, and so does the sentence."""
    page = open_page("losses")
    handle = page.locator('[data-key="probe"]')
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 90, y, steps=6)
    page.mouse.up()
    settle(page)
    s = probe(page)
    assert 1.5 < s < 3  # it started at 1, and the panel is 6 nats wide
    for name in ("pmd-mean", "rloo", "grpo", "cispo", "chi2-po"):
        check_row(page, cell, name, SAME, s)
    assert page.locator('[data-cell="grpo/end"]').text_content() == "0.182, silent"
    assert page.locator('[data-cell="pmd-mean/end"]').text_content() == "2, turns round"
    assert "GRPO does not push it" in page.text_content(".ex-sentence")
    handle.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    settle(page)
    assert probe(page) == pytest.approx(3 - 3 / 60)
    check_row(page, cell, "cispo", SAME, probe(page))


def probe(page):
    """The log-ratio that is looked at, nats."""
    return float(page.get_attribute('[data-key="probe"]', "aria-valuenow"))


def test_the_legend_turns_objectives_on_and_off_by_keyboard(open_page, cell):
    """All twelve at once: each line of the table is torch's; off, its curves and its line are gone."""
    page = open_page("losses", hash="s=-0.4")
    for name in SHOWN:
        key = page.locator(f'[data-key="legend-{name}"]')
        if key.get_attribute("aria-pressed") == "false":
            key.focus()
            page.keyboard.press("Space")
    settle(page)
    assert page.locator("path[data-curve]").count() == 2 * len(SHOWN)
    for name in SHOWN:
        check_row(page, cell, name, SAME, -0.4)
    page.click('[data-key="legend-tb"]')
    settle(page)
    assert page.locator('path[data-curve^="tb/"]').count() == 0
    assert not page.locator('[data-cell="tb/loss"]').is_visible()


def test_a_group_gives_each_objective_its_own_advantage(open_page, cell):
    """One right of 16: the page's advantages are those of `advantage(groups)`; a group without a right one is said."""
    page = open_page("losses")
    page.click('[data-key="preset-rare"]')
    settle(page)
    reward = torch.zeros(1, 16, dtype=torch.float64)
    reward[0, 0] = 1
    groups = Groups(reward, torch.full_like(reward, 1 / 16))
    for own, place in (("wrong", 1), ("right", 0)):
        page.check(f'[data-key="own-{own}"]', force=True)
        settle(page)
        for name in ("pmd-mean", "pmd-part", "grpo", "rloo"):
            tau = {"tau": 0.1} if name.startswith("pmd") else {}
            wanted = OBJECTIVES[name](**tau).advantage(groups)[0, place].item()
            row = SAME | {"advantage": wanted, "tau": 0.1}
            check_row(page, cell, name, row, -1.0)
    page.fill('[data-key="right-field"]', "0")
    settle(page)
    assert "has no right one" in page.text_content(".ex-sentence")
    assert page.locator("path[data-curve]").count() == 0


def test_the_curves_pass_through_the_points_they_should(open_page):
    """The path of a curve, read back through the axis, is the loss that torch gives."""
    page = open_page("losses", hash="on=pmd-mean&range=2&s=0")
    d = page.get_attribute('path[data-curve="pmd-mean/push"]', "d")
    points = np.array([point.split() for point in d[1:].split("L")], float)
    (x0, y0), (x1, y1) = points[0], points[-1]
    pushes = [-at("pmd-mean", SAME, {}, s)[1] for s in np.linspace(-2, 2, len(points))]
    seen = (points[:, 1] - y0) / (y1 - y0) * (pushes[-1] - pushes[0]) + pushes[0]
    np.testing.assert_allclose(seen, pushes, atol=0.005)  # paths are written in tenths of pixels
    np.testing.assert_allclose(np.diff(points[:, 0]), (x1 - x0) / (len(points) - 1), atol=0.15)
    assert page.locator("circle.lo-rest").count() == 2  # the minimum, in both panels


def test_options_reach_the_mathematics(open_page, cell):
    """Clips, the link, the anchor and the length, given in the address."""
    clips = "grpo_high=0.1&gspo_high=0.02&cispo_high=0.5"
    page = open_page(
        "losses", hash=f"on=grpo+gspo+dapo+cispo+chi2-po+tb+dro&s=0.7&length=100&{clips}&kl_share=0.2&anchor=1"
    )
    row = SAME | {"length": 100}
    check_row(page, cell, "grpo", row, 0.7, {"clip_high": 0.1})
    check_row(page, cell, "gspo", row, 0.7, {"clip_high": 0.02})
    check_row(page, cell, "cispo", row, 0.7, {"clip_high": 0.5})
    check_row(page, cell, "chi2-po", row, 0.7, {"kl_share": 0.2})
    check_row(page, cell, "tb", row | {"anchor": 1.0}, 0.7)
    check_row(page, cell, "dapo", row, 0.7)
    broken = open_page("losses", hash="tau=-1&range=1e9&on=nothing&mode=x&s=nan&length=0")
    assert "No objective is on" in broken.text_content(".ex-sentence")


def test_a_reader_without_javascript_sees_the_static_picture(open_page):
    """And one with it sees the live one in its place."""
    page = open_page("losses", live=False)
    assert page.locator(".explore-static img").is_visible()
    assert "all five push alike" in page.locator(".explore-static").text_content()
    assert not open_page("losses").locator(".explore-static").is_visible()


def test_a_finger_drags_as_well(open_page):
    """On a phone: a touch on the handle that moves takes the probe along."""
    page = open_page("losses", width=390, has_touch=True, is_mobile=True)
    handle = page.locator('[data-key="probe"]')
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    before = probe(page)
    touch = page.context.new_cdp_session(page)
    for kind, at_x in (("touchStart", x), ("touchMove", x - 20), ("touchMove", x - 60), ("touchEnd", None)):
        points = [] if at_x is None else [{"x": at_x, "y": y}]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
    settle(page)
    assert probe(page) < before - 0.5


@pytest.mark.parametrize(("width", "scheme"), [(1200, "default"), (1200, "slate"), (390, "default"), (390, "slate")])
def test_the_page_fits_its_window(open_page, tmp_path, width, scheme):
    """Nothing is wider than the window; the picture is kept beside the test's other files."""
    page = open_page("losses", width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=tmp_path / f"losses-{width}-{scheme}.png", full_page=True)


def test_every_change_is_drawn_in_a_frame_of_its_own(open_page):
    """Also where a frame draws all the objectives."""
    page = open_page("losses", hash="on=" + "+".join(SHOWN))
    taus = [round(0.05 * 1.05**i, 4) for i in range(40)]
    assert drawn_frames(page, "tau-field", taus) >= len(taus) - 1
