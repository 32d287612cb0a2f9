"""The loss landscape: its mathematics in Node against torch, one response at a time, and the page in a browser."""

from dataclasses import fields, replace
from itertools import product

import numpy as np
import pytest
import torch

from pmdkit.objectives import OBJECTIVES, Batch, Groups, total, traits

from .frame_cost import frame_cost
from .in_node import in_node

TOLERANCE = 1e-9  # relative, in float64
LOG_RATIOS = [-7.0, -2.1, -0.7, -0.19, -1e-3, 0.0, 2e-4, 0.11, 0.31, 1.3, 2.9, 6.0]  # nats; on no bound of a clip


def settings():
    """Rows with the options of every objective, defaults and others."""
    for name, kind in OBJECTIVES.items():
        known = {field.name for field in fields(kind)}
        varied = [{}]
        if "clip_low" in known:
            varied += [{"clip_low": 0.5, "clip_high": 0.1}, {"clip_low": 1.0, "clip_high": 4.0}]
        if "kl_share" in known:
            varied += [{"kl_share": 0.0}, {"kl_share": 1.0}]
        anchors = (0.0, 0.8) if name == "tb" else (0.0,)
        for options, (advantage, tau), length, anchor in product(
            varied, ((0.9, 0.3), (-0.4, 0.05), (-1.7, 2.0)), (1, 300), anchors
        ):
            row = {"advantage": advantage, "tau": tau, "length": length, "group": 5, "anchor": anchor}
            defaults = {key: getattr(kind(), key) for key in ("clip_low", "clip_high", "kl_share") if key in known}
            yield name, row | defaults | options, options


def at(name, row, options, log_ratio):
    """Loss and derivative by log pi of the first of five responses, of which only it has moved; from torch."""
    kind, size, length = OBJECTIVES[name], row["group"], row["length"]
    objective = kind(norm="none", **options)
    advantage = torch.full((size,), -row["advantage"] / (size - 1), dtype=torch.float64)
    advantage[0] = row["advantage"]
    whole = torch.tensor(log_ratio, dtype=torch.float64, requires_grad=True)
    first = torch.zeros(size, 1, dtype=torch.float64)
    first[0] = 1
    old = torch.zeros(size, length, dtype=torch.float64)
    ones = torch.ones(size, dtype=torch.float64)
    batch = Batch(
        logp=old + first * whole / length, logp_old=old, mask=torch.ones_like(old, dtype=torch.bool),
        length=length * torch.ones(size, dtype=torch.long), advantage=advantage, weight=ones, tau=row["tau"] * ones,
        mass=ones / size, group=torch.zeros(size, dtype=torch.long), logp_ref=old - first * row["anchor"] / length,
    )  # fmt: skip
    if not traits(objective).whole_groups:
        batch = batch[:1]
    value = total(objective, batch)
    if traits(objective).whole_groups:  # less what the others have at pi_old
        value = value - (advantage[1:] ** 2).sum() / (2 * row["tau"])
    (slope,) = torch.autograd.grad(value, whole)
    times = length if name == "gspo" else 1
    return times * value.item(), times * slope.item()


@pytest.fixture(scope="module")
def told(node):
    """Every number of the page's mathematics for every setting."""
    code = """
    const math = await load("objectives.js");
    return given.rows.map(([name, row]) => ({
      names: math.NAMES,
      loss: given.s.map((s) => math.loss(name, s, row)),
      coefficient: given.s.map((s) => math.coefficient(name, s, row)),
      minimum: math.minimum(name, row),
      flat: math.flat(name, row),
    }));
    """
    rows = list(settings())
    return rows, in_node(node, code, {"rows": [(name, row) for name, row, _ in rows], "s": LOG_RATIOS})


def test_every_objective_is_there(told):
    """The page shows OBJECTIVES, in their order."""
    assert told[1][0]["names"] == list(OBJECTIVES)


def test_losses_and_coefficients_are_those_of_torch(told):
    """At every log-ratio, for every objective, option, advantage, temperature and length."""
    for (name, row, options), found in zip(*told, strict=True):
        wanted = [at(name, row, options, s) for s in LOG_RATIOS]
        for column, key in enumerate(("loss", "coefficient")):
            np.testing.assert_allclose(
                found[key], [both[column] for both in wanted], rtol=TOLERANCE, atol=1e-12, err_msg=f"{name} {key} {row}"
            )


def test_the_first_step_is_the_advantage_for_all(told):
    """At pi = pi_old every slope is minus the advantage; TB only where its anchor is pi_old."""
    for (name, row, _), found in zip(*told, strict=True):
        if row["anchor"] == 0:
            slope = found["coefficient"][LOG_RATIOS.index(0.0)]
            assert slope == pytest.approx(-row["advantage"], rel=1e-12), name


def test_the_push_turns_round_at_the_minimum_and_nowhere_else(told):
    """By autograd: 0 at the minimum, below 0 before and above 0 after; where there is none, the sign stays."""
    without = set()
    for (name, row, options), found in zip(*told, strict=True):
        place = found["minimum"]
        if place is None:
            signs = {np.sign(at(name, row, options, s)[1]) for s in LOG_RATIOS}
            assert len(signs - {0.0}) <= 1, name
            without.add(name)
            continue
        scale = abs(row["advantage"])
        if name != "chi2-po" or place < 30:  # beyond, its slope is e^30 times a rounding error
            assert abs(at(name, row, options, place)[1]) < 1e-9 * scale * max(1.0, np.exp(place)), name
        assert at(name, row, options, place - 1e-3)[1] < 0 < at(name, row, options, place + 1e-3)[1], name
    # the pure chi2 link has no solution where tau is below the largest negative advantage
    assert without == {"rloo", "grpo", "dr-grpo", "dapo", "gspo", "cispo", "chi2-po"}


def test_flat_zones_have_no_gradient_and_end_where_they_end(told):
    """By autograd: exactly 0 inside, not 0 just outside; objectives without a zone push everywhere but at a minimum."""
    flat = set()
    for (name, row, options), found in zip(*told, strict=True):
        if found["flat"] is None:
            continue
        low, high = (float(value) for value in found["flat"])
        flat.add(name)
        for edge, inward in ((low, 1e-6), (high, -1e-6)):
            if np.isfinite(edge):
                edge, inward = edge, inward * max(1.0, abs(edge))
                assert at(name, row, options, edge + inward)[1] == 0, name
                assert at(name, row, options, edge - inward)[1] != 0, name
    assert flat == {"grpo", "dr-grpo", "dapo", "gspo"}


def test_advantages_are_those_of_the_objectives(node):
    """Of a right and a wrong response, for every count of right ones, both reward scales, several sizes and tau."""
    groups = [
        {"size": size, "right": right, "own": own, "rewards": rewards}
        for size in (2, 5, 16)
        for right in range(size + 1)
        for own in (True, False)
        for rewards in ([0, 1], [-1, 1])
    ]
    values = {"dro": ("group", 0.25)}
    cases = [
        (name, group, {"tau": tau, "value": value})
        for name in OBJECTIVES
        for group in groups
        for tau in (0.005, 0.5)
        for value in values.get(name, ("group",))
    ]
    code = """
    const { advantage, exists } = await load("advantages.js");
    return given.map(([name, group, row]) => (exists(group) ? advantage(name, group, row) : null));
    """
    met = 0
    for (name, group, row), found in zip(cases, in_node(node, code, cases), strict=True):
        right, size = group["right"], group["size"]
        if not (right >= 1 if group["own"] else right < size):
            assert found is None
            continue
        objective = OBJECTIVES[name]()
        known = {field.name for field in fields(objective)}
        objective = replace(objective, **{key: value for key, value in row.items() if key in known})
        reward = torch.full((1, size), float(group["rewards"][0]), dtype=torch.float64)
        reward[0, :right] = group["rewards"][1]
        wanted = objective.advantage(Groups(reward, torch.full_like(reward, 1 / size)))[0, 0 if group["own"] else -1]
        np.testing.assert_allclose(found, wanted.item(), rtol=TOLERANCE, atol=1e-12, err_msg=f"{name} {group} {row}")
        met += 1
    assert met > 1500


def test_the_inverse_of_the_link_is_one(node):
    """link(inverse(t)) = t from -400 to 400, for pure KL, the mix and pure chi2; null where no ratio is that low."""
    targets = [-400.0, -3.0, -1.0, -0.5, 0.0, 1e-9, 0.7, 19.0, 400.0]
    code = """
    const { inverseLink } = await load("objectives.js");
    return given.shares.map((k) => given.targets.map((t) => inverseLink(t, k)));
    """
    shares = [0.0, 0.3, 0.999, 1.0]
    for k, found in zip(shares, in_node(node, code, {"shares": shares, "targets": targets}), strict=True):
        for t, s in zip(targets, found, strict=True):
            if s is None:
                assert k == 0
                assert t <= -1
                continue
            link = s if k == 1 else k * s + (1 - k) * np.expm1(s)
            np.testing.assert_allclose(link, t, rtol=1e-12, atol=1e-13)


# --- the page, in a browser ---

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
    for name in OBJECTIVES:
        key = page.locator(f'[data-key="legend-{name}"]')
        if key.get_attribute("aria-pressed") == "false":
            key.focus()
            page.keyboard.press("Space")
    settle(page)
    assert page.locator("path[data-curve]").count() == 2 * len(OBJECTIVES)
    for name in OBJECTIVES:
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


def test_frames_are_short(open_page):
    """Sixty a second leave 16.7 ms for a frame; all twelve objectives are drawn in it."""
    page = open_page("losses", hash="on=" + "+".join(OBJECTIVES))
    assert frame_cost(page, "tau-field", [round(0.05 * 1.05**i, 4) for i in range(40)]) < 1000 / 60
