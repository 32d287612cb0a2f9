"""The verb: promised keys, readable tables, errors with a remedy, and arithmetic that needs no torch."""

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]


def test_promised_keys_of_the_papers_run(call, capsys):
    assert call("plan", "qwen2.5-7b", "--gpus", "32xH100", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    promised = "fits memory_gib seconds_generation seconds_update staleness speedup_over_on_policy ms_per_token"
    assert set(promised.split()) <= told.keys()
    assert told["fits"]
    assert 3.6 <= told["speedup_over_on_policy"] <= 5.4
    assert told["ms_per_token"]["overall"] == pytest.approx(
        1e3
        * (told["seconds_generation"] + told["seconds_update"])
        / (8192 * told["assumptions"]["mean_response_tokens"])
    )
    assert (told["evaluations"], told["responses_evaluation"]) == (1 + 25, 30 * 32)  # steps 0, 20, .. 480 and 495
    seconds = 495 * told["seconds_step"] + 26 * told["seconds_evaluation"]
    assert told["hours"] == pytest.approx(seconds / 3600)
    for phase, total in told["memory_gib"].items():
        assert total == pytest.approx(sum(told["memory_parts_gib"][phase].values()))


@pytest.mark.parametrize(
    ("arguments", "known"), [("--ministeps 4 --set run.seed=1", True), ("--set rollout.width=256", False)]
)
def test_a_plan_says_what_the_accepted_rehearsal_of_its_recipe_leaves_possible(call, capsys, arguments, known):
    assert call("plan", "one-gpu", "--gpus", "8xH200", *arguments.split(), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["seconds_update_at_least"] is not None) is known
    assert not known or 0 < told["seconds_update_at_least"] <= told["seconds_update"]


def machines():
    """The machine that llm/README.md names for each recipe on accelerators."""
    rows = re.findall(r"^\| `([\w.-]+)` \|[^|]*\| (\d+xH100|CPU) \|", (ROOT / "llm" / "README.md").read_text(), re.M)
    recipes = {path.stem for path in (ROOT / "llm" / "recipes").glob("*.toml")}
    assert {name for name, _ in rows} == recipes
    return [row for row in rows if row[1] != "CPU"]


@pytest.mark.slow
def test_every_recipe_fits_the_machine_that_its_page_names(call, capsys):
    """Without --gpus, so that parallel.processes is that machine too, and with the recipe's own engine."""
    found, gib = machines(), {}
    assert sorted(count for _, count in found) == ["1xH100", "1xH100", "32xH100", "64xH100"]
    for recipe, machine in found:
        assert call("plan", recipe, "--json") == 0
        told = json.loads(capsys.readouterr().out)
        assert (recipe, told["gpus"], told["fits"]) == (recipe, machine, True)
        assert told["assumptions"]["engine_memory_share"] is not None
        gib[recipe] = tuple(f"{told['memory_gib'][phase]:.0f}" for phase in ("rollout", "score", "update"))
    page = (ROOT / "docs" / "use" / "llm.md").read_text()
    quoted = re.findall(r"^\| `([\w.-]+)` \|[^|]*\| \d+ \| (\d+), (\d+), (\d+) \|", page, re.M)
    assert {recipe: tuple(three) for recipe, *three in quoted} == {name: gib[name] for name, *_ in quoted}
    assert len(quoted) == 3


@pytest.mark.parametrize(
    ("recipe", "arguments", "code"),
    [
        ("qwen2.5-7b", "--gpus lots", 2),
        ("qwen2.5-7c", "", 2),
        ("qwen2.5-7b", "--lengths short", 2),
        ("qwen2.5-7b", "--prompt-length 0", 2),
        ("qwen2.5-7b", "--set model.path=nobody/nothing", 3),
    ],
)
def test_mistakes_are_one_line(call, capsys, recipe, arguments, code):
    assert call("plan", recipe, *arguments.split()) == code
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
