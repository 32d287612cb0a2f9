"""Wrong usage: the documented exit code, one clear line, no traceback, nothing overwritten."""

import json
import os

import pytest


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["bandit", "nedle"], "did you mean 'needle'"),
        (["bandit", "nowhere.toml"], "does not exist"),
        (["bandit"], "ENV"),
        (["bandti", "needle"], "bandit"),
        (["eval", "runs/x", "--k", "2.7"], "'2.7'; expected an integer"),
        (["theory", "--p", "0,1"], "'0,1'; expected a number"),
        (["theory", "--budget", "9", "--pass-rates", "0.1;0.2"], "expected numbers with commas"),
        (["theory", "--budget", "9", "--cells", "1"], "expected two whole numbers"),
        (["theory", "--budget", "1"], "expected at least"),
        (["theory", "--budget", "99", "--p", "0.1"], "leave out --p"),
        (["plan", "starter", "--pass-rates", "0,1"], "p is 0 or 1 somewhere"),
        (["plan", "starter", "--gpus", "1xH100", "--tp", "010"], "'010'; expected an integer"),
        (["sweep", "bandit", "needle", "--seeds", "1_0"], "'1_0'; expected an integer"),
        (["bandit", "needle", "--tau", "0"], "tau is 0.0; expected a finite number > 0"),
        (["bandit", "needle", "--tau", "-1"], "tau is -1.0; expected a finite number > 0"),
        (["bandit", "needle", "--tau", "nan"], "objective.tau is nan; expected a finite number"),
        (["bandit", "needle", "--tau", "inf"], "objective.tau is inf; expected a finite number"),
        (["bandit", "needle", "--tau", "small"], "small"),
        (["bandit", "needle", "--objective", "pmd-meen"], "did you mean 'pmd-mean'"),
        (["bandit", "needle", "--objective", "mine.py:MyLoss"], "mine.py"),
        (["bandit", "needle", "--group", "1"], "expected at least 2"),
        (["bandit", "needle", "--group", "0"], "schedule.group is 0; expected an integer >= 1"),
        (["bandit", "needle", "--steps", "-3"], "schedule.steps is -3; expected an integer >= 1"),
        (["bandit", "needle", "--steps", "0"], "schedule.steps is 0; expected an integer >= 1"),
        (["bandit", "needle", "--ministeps", "2"], "for 1 prompts per step"),
        (["bandit", "needle", "--lr", "nan"], "schedule.lr is nan"),
        (["bandit", "needle", "--stepz", "2"], "--stepz"),
        (["bandit", "needle", "--set", "objective.taw=0.1"], "did you mean 'objective.tau'"),
        (["bandit", "needle", "--set", "env.armz=5"], "did you mean 'env.arms'"),
        (["bandit", "needle", "--set", "schedule.step=5"], "did you mean 'schedule.steps'"),
        (["bandit", "needle", "--set", "schedul.steps=5"], "did you mean 'schedule'"),
        (["bandit", "needle", "--set", "armz=5"], "did you mean 'env.arms'"),
        (["bandit", "needle", "--set", "taw=1"], "did you mean 'objective.tau'"),
        (["bandit", "needle", "--set", "Schedule.steps=5"], "did you mean 'schedule'"),
        (["bandit", "needle", "--TAU", "1"], "Did you mean --tau?"),
        (["bandit", "needle", "--set", "arms"], "expected key=value"),
        (["bandit", "needle", "--set"], "--set got nothing"),
        (["bandit", "needle", "--set", "steps=3", "steps=4"], "steps is given twice, as 3 and 4"),
        (["bandit", "needle", "--steps", "3.7"], "'3.7'; expected an integer"),
        (["bandit", "needle", "--tau", "0,1"], "'0,1'; expected a number"),
        (["bandit", "needle", "--set", "schedule.steps=ten"], "schedule.steps is 'ten'"),
        (["bandit", "needle", "--set", "env.arms=1"], "arms"),
        (["bandit", "needle", "--set", "update=regressoin"], "update"),
        (["bandit", "needle", "--set", "update=regression", "--group", "8"], "needs the full support"),
        (["bandit", "shared-features", "--set", "update=exact"], "cannot hold it"),
        (["bandit", "needle", "--objective", "grpo", "--set", "update=exact"], "none in closed form"),
        (["bandit", "needle", "--objective", "rebel", "--set", "update=regression"], "couples the responses"),
        (["bandit", "needle", "--resume"], "give its folder with --out"),
        (["bandit", "needle", "--objective", "rloo", "--tau", "0.1"], "objective.tau"),
        (["theory", "--p", "2"], "p is 2.0"),
        (["theory", "--tau", "0"], "tau is 0.0"),
        (["objectives", "grop"], "did you mean 'grpo'"),
        (["ledger", "--verdict", "hold"], "did you mean 'holds'"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(call, arguments, told, capsys, tmp_path):
    more = ["--out", tmp_path / "run"] if arguments[0] == "bandit" and "--resume" not in arguments else []
    assert call(*arguments, *more) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("pmdkit: error: ")
    assert captured.err.count("\n") == 1
    assert told in captured.err
    assert not (tmp_path / "run").exists()


def test_an_output_that_exists_is_not_touched(call, tmp_path, capsys):
    (tmp_path / "file").write_text("keep")
    assert call("bandit", "needle", "--steps", 2, "--out", tmp_path / "file") == 2
    assert (tmp_path / "file").read_text() == "keep"
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    assert call("bandit", "needle", "--steps", 2, "--out", tmp_path / "run") == 2
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["config.json"]
    assert "use --resume or another --out" in capsys.readouterr().err


def test_an_output_that_cannot_be_made_is_exit_3(call, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert call("bandit", "needle", "--steps", 2, "--out", tmp_path / "file" / "run") == 3
    assert "cannot be written" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0 if hasattr(os, "geteuid") else True, reason="root may write anywhere")
def test_a_read_only_place_is_exit_3(call, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    assert call("bandit", "needle", "--out", tmp_path / "locked" / "run") == 3


def test_damaged_checkpoints_are_exit_5(call, tmp_path, capsys):
    out = tmp_path / "run"
    assert call("bandit", "needle", "--steps", 2, "--out", out) == 0
    for path in (out / "checkpoints").glob("step-*/model.safetensors"):
        path.write_bytes(b"no")
    (out / "summary.json").unlink()
    assert call("bandit", "needle", "--steps", 2, "--out", out, "--resume") == 5
    assert "every one is damaged" in capsys.readouterr().err


def test_a_run_that_diverges_is_exit_6(call, tmp_path, capsys):
    out = tmp_path / "run"
    twice = ["--prompts", "2", "--ministeps", "2"]  # the second ministep squares the log-ratio of the first
    arguments = ["bandit", "needle", *twice, "--set", "update=gradient", "optimizer=sgd", "--lr", "1e200", "--out", out]
    assert call(*arguments) == 6
    assert "the last checkpoint is intact" in capsys.readouterr().err


def test_json_is_one_value_and_progress_is_elsewhere(call, tmp_path, capsys):
    assert call("bandit", "needle", "--steps", 1, "--json", "--out", tmp_path / "run") == 0
    summary = json.loads(capsys.readouterr().out)
    assert abs(summary["pass_rate_first"] - 0.01) < 1e-12
    assert abs(summary["pass_rate_last"] - 0.37942) < 1e-5


def test_dry_run_starts_nothing(call, tmp_path, capsys):
    assert call("bandit", "needle", "--group", 8, "--dry-run", "--out", tmp_path / "run") == 0
    assert json.loads(capsys.readouterr().out)["schedule"]["update"] == "gradient"
    assert not (tmp_path / "run").exists()
