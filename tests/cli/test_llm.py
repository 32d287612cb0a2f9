"""`pmdkit llm` on the command line: the plan, the summary, and errors as one line with a code."""

import json
from pathlib import Path

import pytest

from pmdkit.cli import main
from pmdkit.specs import LLMSpec
from pmdkit.specs.find import names
from pmdkit.specs.toml import to_toml

TINY = str(Path(__file__).parents[1] / "llm" / "tiny.toml")


@pytest.fixture
def printed(capsys):
    """Run a verb that ends well; returns what it printed."""

    def run(*words):
        with pytest.raises(SystemExit) as left:
            main([str(word) for word in words])
        assert left.value.code in (0, None)
        return capsys.readouterr().out

    return run


@pytest.mark.slow
def test_dry_run_prints_it_and_starts_nothing(printed, tmp_path):
    told = json.loads(printed("llm", "starter", "--dry-run", "--json", "--out", tmp_path / "run"))
    assert told["plan"]["batch"]["responses per step"] == 256
    assert told["config"]["model"]["build"] == "starter"
    text = printed("llm", "starter", "--dry-run", "--out", tmp_path / "run")
    for words in ("staleness of the last ministep", "memory, GiB", "checkpoints/step-N/", "tau 0.05 on rewards"):
        assert words in text
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_json_is_the_summary(printed, tmp_path):
    summary = json.loads(printed("llm", TINY, "--steps", 1, "--json", "--out", tmp_path / "run"))
    assert summary["tier"] == "llm"
    assert summary["env"] == "tiny"
    assert summary["tokens"] > 0
    assert 0 <= summary["pass_rate_last"] <= 1


@pytest.mark.slow
def test_fit_measures_a_budget_and_runs_with_it(printed, tmp_path):
    summary = json.loads(printed("llm", TINY, "--steps", 1, "--fit", "--json", "--out", tmp_path / "run"))
    config = json.loads((Path(summary["out"]) / "config.json").read_text())
    budget = config["update"]["token_budget"]
    assert budget >= 1024
    assert budget & (budget - 1) == 0


@pytest.mark.slow
def test_a_model_and_data_are_enough(printed, tmp_path, monkeypatch):
    """No recipe: the budget is measured, the reward is one's own, and the recipe that is written is the run's."""
    monkeypatch.chdir(tmp_path)
    printed("llm-starter", "model", "--pass-rate", 0)
    rows = [{"problem": f"What is {n} + {n}?", "answer": str(2 * n), "level": "easy"} for n in range(40)]
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("my.py").write_text("def short(response, level, cut_off):\n    return 1 / (1 + len(response))\n")
    words = ["--model", "model", "--data", "mine.jsonl", "--reward", "my.py:short", "--steps", 1, "--prompts", 2]
    words += ["--group", 2, "--set", "rollout.width=8", "rollout.max_prompt=128", "evaluation.problems=2"]
    told = printed("llm", *words, "--json", "--out", "run", "--save-recipe", "mine.toml")
    assert 0 < json.loads(told)["reward_last"] <= 1
    config = json.loads(Path("run/config.json").read_text())
    saved = json.loads(json.dumps(LLMSpec.read("mine.toml").record()))
    assert {**saved, "name": "own", "objective": {}} == {**config, "objective": {}}
    again = json.loads(printed("llm", "mine.toml", "--trust", "my.py", "--json", "--out", "again"))
    assert again["reward_last"] == json.loads(told)["reward_last"]


def test_every_recipe_can_be_written_and_read(tmp_path):
    """Tables to TOML and back; several rewards are [[reward]] tables again."""
    for name in names("llm"):
        spec = LLMSpec.read(name).override({"reward.others": [{"grade": "my.py:fn", "weight": 0.5, "label": 'a "b"'}]})
        (tmp_path / f"{name}.toml").write_text(to_toml(spec.tables()))
        assert LLMSpec.read(str(tmp_path / f"{name}.toml")) == spec
        assert (tmp_path / f"{name}.toml").read_text().count("[[reward]]") == 2


def test_help_lists_the_shelf():
    from pmdkit.cli.llm import llm

    assert all(name in llm.__doc__ for name in names("llm"))


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["starte"], 2, "did you mean 'starter'"),
        (["--model", "x"], 2, "give --model FOLDER and --data FILE"),
        (["starter", "--set", "rollout.widht=3"], 2, "rollout.width"),
        (["starter", "--tau", "0"], 2, "tau"),
        (["starter", "--set", "env.kind=arithmetics"], 2, "arithmetic"),
        ([TINY, "--set", "model.path=./nowhere", "model.build=null"], 2, "./nowhere does not exist"),
        (["starter", "--set", "trust_remote_code=true"], 2, "trust_remote_code"),
    ],
)
def test_errors_are_one_line_with_a_code(words, code, told, capsys, tmp_path):
    with pytest.raises(SystemExit) as left:
        main(["llm", *words, "--out", str(tmp_path / "run")])
    assert left.value.code == code
    said = capsys.readouterr().err.strip().splitlines()
    assert told in said[-1]
    assert said[-1].startswith("pmdkit: error: ")
    assert not (tmp_path / "run").exists()
