"""The batch and staleness planner: its mathematics in Node against pmdkit's planner, and the page in a browser."""

import json
import shlex
from functools import cache

import numpy as np
import pytest

from pmdkit.errors import UsageError
from pmdkit.llm.planner.division import best
from pmdkit.llm.planner.export import export
from pmdkit.llm.planner.gpus import cluster
from pmdkit.llm.planner.lengths import lengths
from pmdkit.llm.planner.overlap import timeline
from pmdkit.llm.planner.predict import Prediction
from pmdkit.llm.planner.sizes import sizes_of, work_of
from pmdkit.planning import plan

from .frame_cost import frame_cost
from .in_node import in_node

TOLERANCE = 1e-9  # relative: both sum up to 32,768 terms in float64, in another order

PAPER = {
    "model": "Qwen/Qwen2.5-7B", "gpu": "H100", "gpus": 32, "tp": 1, "serve": 0, "shape": "direct", "mean": None,
    "prompts": 512, "group": 16, "ministeps": 16, "passes": 1, "lag": 0, "width": 8192, "max_prompt": 2048,
    "prompt": 170, "token_budget": 20480, "checkpointing": True, "fsdp2": True, "recompute": True,
}  # fmt: skip
SETTINGS = [
    PAPER,
    PAPER | {"shape": "thinking", "mean": 3000.0, "ministeps": 1},
    PAPER | {"lag": 1, "serve": 8, "recompute": False, "gpus": 64},
    PAPER | {"model": "Qwen/Qwen3-30B-A3B-Base", "gpus": 64, "tp": 4, "width": 4096, "token_budget": 6144},
    PAPER | {"model": "Qwen/Qwen3-30B-A3B-Base", "gpu": "H200", "gpus": 16, "tp": 2, "width": 2048, "serve": 4},
    PAPER | {"gpu": "L40S", "gpus": 1, "fsdp2": False, "prompts": 8, "ministeps": 8, "width": 1024},
    PAPER | {"model": "Qwen/Qwen2.5-1.5B", "gpu": "L40S", "gpus": 1, "prompts": 64, "ministeps": 8, "width": 2048,
             "max_prompt": 1024, "token_budget": 16384, "fsdp2": False, "recompute": False},
    PAPER | {"model": "Qwen/Qwen2.5-0.5B", "gpu": "RTX4090", "gpus": 2, "prompts": 4096, "mean": 200.0, "width": 512,
             "fsdp2": False, "checkpointing": False, "passes": 2, "token_budget": 4096},
    PAPER | {"gpus": 512, "prompts": 96, "ministeps": 3, "width": 2048, "mean": 1900.0},
]  # fmt: skip


@cache
def tables():
    """What the page reads, made as the build makes it."""
    from generate.explore_static import planner_tables

    return planner_tables()


def resolved(setting):
    """The same setting as a recipe of pmdkit."""
    changes = {
        "model.path": setting["model"], "model.checkpointing": setting["checkpointing"],
        "parallel.strategy": "fsdp2" if setting["fsdp2"] else "ddp", "schedule.prompts": setting["prompts"],
        "schedule.group": setting["group"], "schedule.ministeps": setting["ministeps"],
        "schedule.passes": setting["passes"], "rollout.width": setting["width"],
        "rollout.max_prompt": setting["max_prompt"], "rollout.lag": setting["lag"],
        "rollout.old": "recompute" if setting["recompute"] else "rollout",
        "update.token_budget": setting["token_budget"],
    }  # fmt: skip
    return plan("llm", "qwen2.5-7b", changes)[0]


def predicted(setting):
    """What pmdkit's planner says of the setting, and the recipe."""
    spec = resolved(setting)
    shape = lengths(setting["shape"], setting["width"], setting["mean"])
    place = cluster(f"{setting['gpus']}x{setting['gpu']}", setting["tp"])
    work = work_of(spec, setting["prompt"])
    return spec, Prediction(sizes_of(spec), work, shape, place, serve=setting["serve"])


def close(told, wanted, where=""):
    """Every number equal to TOLERANCE, every word and verdict equal."""
    if isinstance(wanted, dict):
        assert set(told) == set(wanted), where
        for key, value in wanted.items():
            close(told[key], value, f"{where}/{key}")
    elif isinstance(wanted, bool | str):
        assert told == wanted, where
    else:
        np.testing.assert_allclose(told, wanted, rtol=TOLERANCE, atol=1e-12, err_msg=where)


@pytest.fixture(scope="module")
def golden(node):
    """Predictions of all settings, from Node and from pmdkit."""
    code = """
    const { predict } = await load("prediction.js");
    return given.settings.map((setting) => predict(given.tables, setting));
    """
    told = in_node(node, code, {"tables": tables(), "settings": SETTINGS})
    return [(setting, found, *predicted(setting)) for setting, found in zip(SETTINGS, told, strict=True)]


def test_memory_is_that_of_the_planner(golden):
    """By phase and part, GiB; the limit, the room for keys and values, and whether it fits."""
    verdicts = set()
    for _, found, _, wanted in golden:
        memory = wanted.memory
        close(found["memory"], {
            "phases": memory.phases, "totals": memory.totals, "limit": memory.limit, "room": memory.room,
            "fits": memory.fits,
        })  # fmt: skip
        verdicts.add(memory.fits)
    assert verdicts == {True, False}  # the settings meet both


def test_seconds_are_those_of_the_planner(golden):
    """Generation, scoring, update, the step, ms per token and the speed-up over the on-policy twin."""
    waiting, waits_for = set(), set()
    for _, found, _, wanted in golden:
        generation, update = wanted.generation, wanted.update
        names = ("decode", "prefill", "sync", "steps", "queue", "seconds")
        close(found["generation"], {name: getattr(generation, name) for name in names})
        names = ("compute", "wire", "optimizer", "visits", "seconds")
        close(found["update"], {name: getattr(update, name) for name in names})
        close(found["perToken"], wanted.ms_per_token)
        for name in ("scoring", "seconds", "tokens", "staleness", "speedup", "overlaps"):
            close(found[name], getattr(wanted, name), name)
        assert found["engines"] == wanted.generators.engines
        assert (found["generators"], found["trainers"]) == (wanted.generators.count, wanted.trainers.count)
        close(found["onPolicy"]["perToken"], wanted.on_policy.ms_per_token)
        waiting.add(generation.queue > 0)
        waits_for.add(update.wire > update.compute)
    assert waiting == waits_for == {True, False}  # both branches of both formulas are met


def test_the_timeline_and_the_ages_are_those_of_the_loop(node):
    """Starts and ends of every step; ages count updates from the version that wrote to the one that learns."""
    cases = [(70.0, 160.0, 6, 0, False), (70.0, 160.0, 6, 1, True), (160.0, 70.0, 6, 2, True), (5.0, 7.0, 6, 1, False)]
    code = """
    const { timeline, ages, staleness } = await load("timeline.js");
    return given.map((one) => [timeline(...one), [0, 1, 2, 5].map((s) => ages(s, one[3], 4)), staleness(one[3], 2, 2)]);
    """
    for (generating, training, steps, lag, apart), told in zip(cases, in_node(node, code, cases), strict=True):
        wanted = timeline(np.full(steps, generating), np.full(steps, training), lag, apart)
        close(told[0]["generation"], wanted.generation)
        close(told[0]["update"], wanted.update)
        assert told[0]["version"] == wanted.version.tolist()
        for step, ages in zip((0, 1, 2, 5), told[1], strict=True):
            assert ages == [4 * (step - int(wanted.version[step])) + k for k in range(4)]
        assert told[1][-1][-1] == told[2] == (lag + 1) * 4 - 1


def test_the_best_division_is_that_of_the_planner(node):
    """All divisions tried, the shortest step among those that fit."""
    lagged = [PAPER | {"lag": 1, "recompute": False, "gpus": gpus, "width": 1024} for gpus in (4, 16, 32)]
    lagged.append(PAPER | {"lag": 1, "gpus": 4, "gpu": "L40S", "recompute": False, "width": 1024})
    code = """
    const { bestServe } = await load("prediction.js");
    return given.settings.map((setting) => bestServe(given.tables, setting));
    """
    told = in_node(node, code, {"tables": tables(), "settings": lagged})
    wanted = [best(predicted(setting)[1]) for setting in lagged]
    assert told == [one and one.serve for one in wanted]
    assert wanted[-1] is None
    assert wanted[0] is not None


def test_the_words_of_trl_and_verl_are_those_of_the_exports(node, golden):
    """Every key that the page shows has the value that `pmdkit plan --as` gives it; none where that refuses."""
    code = """
    const { trl, verl } = await load("batch.js");
    const { memoryOf, predict } = await load("prediction.js");
    return given.settings.map((setting) => {
      const found = predict(given.tables, setting);
      const together = memoryOf(given.tables, { ...setting, serve: 0, lag: 0 });
      return { trl: trl(setting, found), verl: verl(setting, given.tables, together) };
    });
    """
    refused = 0
    for (_, _, spec, wanted), told in zip(
        golden, in_node(node, code, {"tables": tables(), "settings": SETTINGS}), strict=True
    ):
        for name in ("trl", "verl"):
            try:
                keys = export(name, spec, wanted).values
            except UsageError:
                assert told[name] is None
                refused += 1
                continue
            assert told[name], name
            assert {key: keys[key] for key in told[name]} == told[name]
    assert refused


def test_the_words_of_openrlhf_say_the_same_batch(node, golden):
    """Its keys, read back with the arithmetic of its trainer, give prompts, responses, updates and accelerators."""
    code = """
    const { openrlhf } = await load("batch.js");
    const { memoryOf, predict } = await load("prediction.js");
    return given.settings.map((setting) => {
      const found = predict(given.tables, setting);
      return openrlhf(setting, found, given.tables, memoryOf(given.tables, { ...setting, serve: 0, lag: 0 }));
    });
    """
    told = in_node(node, code, {"tables": tables(), "settings": SETTINGS})
    assert sum(keys is not None for keys in told) >= 5
    for (setting, _, _, wanted), keys in zip(golden, told, strict=True):
        if keys is None:
            continue
        responses = keys["rollout.batch_size"] * keys["rollout.n_samples_per_prompt"]
        assert responses == wanted.work.rows
        assert responses // keys["train.batch_size"] == setting["ministeps"]  # ppo_utils/replay_buffer.py
        trainers = keys["actor.num_nodes"] * keys["actor.num_gpus_per_node"]
        assert trainers == wanted.trainers.count
        assert keys["train.batch_size"] % (keys["train.micro_batch_size"] * trainers) == 0  # whole accumulation
        engines = keys["vllm.num_engines"] * keys["vllm.tensor_parallel_size"]
        assert engines == wanted.generators.count
        assert keys.get("train.colocate_all", False) == (engines == trainers == setting["gpus"])
        assert keys["data.max_len"] - keys["rollout.max_new_tokens"] == setting["max_prompt"]


def test_the_command_asks_the_planner_for_the_same_setting(node, golden):
    """`pmdkit plan ... --json` as the page writes it gives the page's seconds and GiB."""
    code = """
    const { command } = await load("batch.js");
    return given.settings.map((setting) => command(setting, given.tables.recipes["qwen2.5-7b"]));
    """
    lines = in_node(node, code, {"tables": tables(), "settings": SETTINGS})
    assert lines[0] == "pmdkit plan qwen2.5-7b --gpus 32xH100 --tp 1 --prompts 512 --group 16 --ministeps 16"
    for (_, found, _, _), line in zip(golden[2:6], lines[2:6], strict=True):
        report = from_command_line(line)
        close(found["seconds"], report["seconds_step"])
        close(found["memory"]["phases"], report["memory_parts_gib"])
        assert found["staleness"] == report["staleness"]


def from_command_line(line):
    """What the command prints, parsed and run in this process."""
    import contextlib
    import io

    from pmdkit.cli.plan import plan as command

    words = shlex.split(line)
    assert words[:3] == ["pmdkit", "plan", "qwen2.5-7b"]
    given, sets = {}, []
    for key, value in zip(words[3::2], words[4::2], strict=True):
        if key == "--set":
            sets.append(value)
        else:
            given[key.removeprefix("--").replace("-", "_")] = value
    whole = ("tp", "serve", "prompts", "group", "ministeps")
    typed = {key: int(value) if key in whole else value for key, value in given.items()}
    if "mean_length" in typed:
        typed["mean_length"] = float(typed["mean_length"])
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        command("qwen2.5-7b", json=True, set=sets or None, **typed)
    return json.loads(out.getvalue())


# --- the page, in a browser ---


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
def test_frames_are_short(open_page, key, values):
    """Sixty a second leave 16.7 ms for a frame; four steps of 64 ministeps each are drawn in it."""
    page = open_page("batch", hash="lag=1&serve=8&recompute=0&gpus=32&prompts=512&ministeps=64")
    assert frame_cost(page, key, values) < 1000 / 60
