"""The batch and staleness planner in a headless Chromium: controls, drags, numbers against the planner, pictures."""

import pytest

from pmdkit_lab.planner.export import export
from pmdkit_lab.planner.predict import best

from .frames import drawn_frames
from .planned import PAPER, close, predicted


def shown(page, cell):
    """The numbers of the page that have a name in the planner."""
    names = ("generation", "scoring", "update", "step", "token", "speedup", "staleness")
    told = {name: cell(page, f"{name}/value") for name in names}
    return told | {f"{phase} GiB": cell(page, f"total/{phase}") for phase in ("rollout", "update")}


def wanted_of(setting):
    """The same numbers from pmdkit."""
    _, one = predicted(setting)
    return {
        "generation": one.generation.seconds, "scoring": one.scoring, "update": one.update.seconds,
        "step": one.seconds, "token": one.ms_per_token["overall"], "speedup": one.speedup,
        "staleness": one.staleness, "rollout GiB": one.memory.totals["rollout"],
        "update GiB": one.memory.totals["update"],
    }  # fmt: skip


def settle(page):
    """Wait until the frame after the last change was drawn."""
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done())))")


def test_the_page_shows_the_planners_numbers_after_every_control(open_page, cell):
    """At the start, after a number in a field, an arrow key, and a choice; each is the planner's own prediction."""
    page = open_page("batch")
    close(shown(page, cell), wanted_of(PAPER))
    page.fill('[data-key="gpus-field"]', "64")
    settle(page)
    setting = PAPER | {"gpus": 64}
    close(shown(page, cell), wanted_of(setting))
    page.focus('[data-key="prompts"]')
    page.keyboard.press("ArrowRight")  # to the next number that frameworks can divide
    settle(page)
    setting |= {"prompts": 768}
    close(shown(page, cell), wanted_of(setting))
    page.fill('[data-key="mean-field"]', "1500")
    page.check('[data-key="model-Qwen/Qwen2.5-1.5B"]', force=True)
    settle(page)
    setting |= {"mean": 1500.0, "model": "Qwen/Qwen2.5-1.5B"}
    close(shown(page, cell), wanted_of(setting))


def test_a_lag_divides_the_gpus_and_overlaps_the_lanes(open_page, cell):
    """The division is the planner's best; the second batch is written while the first is learned from."""
    page = open_page("batch", hash="gpus=64")
    page.focus('[data-key="lag"]')
    page.keyboard.press("ArrowRight")
    settle(page)
    setting = PAPER | {"gpus": 64, "lag": 1, "recompute": False}
    division = best(predicted(setting)[1])
    close(shown(page, cell), wanted_of(setting | {"serve": division.serve}))
    assert page.input_value('[data-key="serve-field"]') == str(division.serve)
    assert ages(page)[:16] == list(range(16))  # the first step has seen no lag yet
    assert ages(page)[-16:] == list(range(16, 32))
    written = page.locator("rect.ba-generate").evaluate_all("all => all.map((one) => Number(one.getAttribute('x')))")
    learned = page.locator("rect.ba-update").evaluate_all("all => all.map((one) => Number(one.getAttribute('x')))")
    assert written[1] < learned[-1]
    assert written[1] <= learned[0] + 1  # it begins when the first batch is done, not when it is learned from


def ages(page):
    """Policy ages of the ministeps that are drawn."""
    return page.locator("rect.ba-update").evaluate_all("all => all.map((one) => Number(one.dataset.age))")


def test_dragging_the_handle_tells_who_does_what(open_page):
    """Dragged into the middle of the ninth ministep of the second step, it names update, batch and age."""
    page = open_page("batch")
    _, one = predicted(PAPER)
    second = one.seconds + one.generation.seconds + one.scoring + one.update.seconds * 8.5 / 16
    handle = page.locator('[data-key="moment"]')
    box, lane = handle.bounding_box(), page.locator("rect.ba-update").last.bounding_box()
    first = page.locator("rect.ba-generate").first.bounding_box()
    across = first["x"] + second / (3 * one.seconds) * (lane["x"] + lane["width"] - first["x"])
    y = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + box["width"] / 2, y)
    page.mouse.down()
    page.mouse.move(across - 30, y)
    page.mouse.move(across, y, steps=5)
    page.mouse.up()
    settle(page)
    told = page.text_content(".ex-sentence")
    assert "update 9 of 16 learns from batch 2" in told
    assert "a policy 8 updates old" in told
    handle.focus()
    page.keyboard.press("Home")
    settle(page)
    assert page.text_content(".ex-sentence") == "After 0 s batch 1 is written."


def test_the_words_can_be_copied(open_page):
    """The text under each framework holds the values of the export; a batch that does not divide is said."""
    page = open_page("batch")
    spec, one = predicted(PAPER)
    for name, separator in (("trl", ": "), ("verl", "=")):
        page.check(f'[data-key="as-{name}"]', force=True)
        lines = [line.rstrip(" \\") for line in page.text_content(".ba-code").splitlines()]
        told = dict(line.split(separator, 1) for line in lines)
        values = export(name, spec, one).values
        assert told == {key: str(values[key]).lower() if values[key] is True else str(values[key]) for key in told}
        assert len(told) >= 8
    page.check('[data-key="as-openrlhf"]', force=True)
    flags = [line.rstrip(" \\") for line in page.text_content(".ba-code").splitlines()]
    assert flags[:3] == ["--rollout.batch_size 512", "--rollout.n_samples_per_prompt 16", "--train.batch_size 512"]
    assert page.text_content('[data-word="verl/2"]').endswith("ppo_mini_batch_size = 32 prompts")
    page.click('[data-key="copy"]')
    page.wait_for_function("() => document.querySelector('.ba-copied').textContent !== ''")
    page.fill('[data-key="gpus-field"]', "24")
    settle(page)
    assert "512 responses, which 24 GPUs do not divide" in page.text_content(".ba-code")


def test_presets_and_the_address_bring_a_setting_back(open_page, cell):
    """A preset that does not fit says so; the address it leaves behind restores it on another visit."""
    page = open_page("batch")
    page.click('[data-key="preset-full"]')
    settle(page)
    assert "This does not fit" in page.text_content(".ex-sentence")
    numbers = shown(page, cell)
    page.wait_for_function("() => location.hash.includes('gpus=1')")
    again = open_page("batch", hash=page.url.split("#")[1])
    assert shown(again, cell) == numbers
    broken = open_page("batch", hash="gpus=-3&tp=7&mean=1e9&serve=99&model=nonsense")
    assert broken.input_value('[data-key="gpus-field"]') == "1"


def test_a_reader_without_javascript_sees_the_static_picture(open_page):
    """And one with it sees the live one in its place."""
    page = open_page("batch", live=False)
    assert page.locator(".explore-static img").is_visible()
    assert "16 ministeps" in page.locator(".explore-static").text_content()
    assert not open_page("batch").locator(".explore-static").is_visible()


@pytest.mark.parametrize(("width", "scheme"), [(1200, "default"), (1200, "slate"), (390, "default"), (390, "slate")])
def test_the_page_fits_its_window(open_page, tmp_path, width, scheme):
    """Nothing is wider than the window; the picture is kept beside the test's other files."""
    page = open_page("batch", width=width, scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=tmp_path / f"batch-{width}-{scheme}.png", full_page=True)


@pytest.mark.parametrize(
    ("key", "values"), [("prompts-field", [32, 64, 96, 128, 256, 512, 1024]), ("mean-field", [*range(900, 2400, 50)])]
)
def test_every_change_is_drawn_in_a_frame_of_its_own(open_page, key, values):
    """Also where a frame draws four steps of 64 ministeps each."""
    page = open_page("batch", hash="lag=1&serve=8&recompute=0&gpus=32&prompts=512&ministeps=64")
    assert drawn_frames(page, key, values) >= len(values) - 1
