"""`pmdkit llm` on the command line: the plan, the summary, and errors as one line with a code."""

import json
from pathlib import Path

import pytest

from pmdkit.cli import main

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


def test_dry_run_prints_it_and_starts_nothing(printed, tmp_path):
    told = json.loads(printed("llm", "starter", "--dry-run", "--json", "--out", tmp_path / "run"))
    assert told["plan"]["batch"]["responses per step"] == 256
    assert told["config"]["model"]["build"] == "starter"
    text = printed("llm", "starter", "--dry-run", "--out", tmp_path / "run")
    for words in ("staleness of the last ministep", "memory, GiB", "checkpoints/step-N/", "tau 0.05 on rewards"):
        assert words in text
    assert not (tmp_path / "run").exists()


def test_json_is_the_summary(printed, tmp_path):
    summary = json.loads(printed("llm", TINY, "--steps", 1, "--json", "--out", tmp_path / "run"))
    assert summary["tier"] == "llm"
    assert summary["env"] == "tiny"
    assert summary["tokens"] > 0
    assert 0 <= summary["pass_rate_last"] <= 1


def test_fit_measures_a_budget_and_runs_with_it(printed, tmp_path):
    summary = json.loads(printed("llm", TINY, "--steps", 1, "--fit", "--json", "--out", tmp_path / "run"))
    config = json.loads((Path(summary["out"]) / "config.json").read_text())
    budget = config["update"]["token_budget"]
    assert budget >= 1024
    assert budget & (budget - 1) == 0


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (["starte"], 2, "did you mean 'starter'"),
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
