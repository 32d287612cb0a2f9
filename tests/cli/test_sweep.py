"""`pmdkit sweep`: wrong usage is one line and a code, a dry run starts nothing."""

import json

import pytest


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "expected both"),
        (["bandit", "nedle"], "did you mean 'needle'"),
        (["bandid", "needle"], "did you mean 'bandit'"),
        (["bandit", "needle", "--over", "taw=1,2"], "objective.tau"),
        (["bandit", "needle", "--over", "tau=1,-2"], "tau is -2"),
        (["bandit", "needle", "--over", "tau"], "expected key=v1,v2"),
        (["bandit", "needle", "--over", "tau=1", "--set", "tau=2"], "both in --over and in --set"),
        (["bandit", "needle", "--seeds", "0"], "--seeds is 0"),
        (["bandit", "needle", "--jobs", "0"], "--jobs is 0"),
        (["--experiment", "taus"], "did you mean 'tau'"),
        (["toy", "copy", "--experiment", "tau"], "leave TIER"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_2(call, arguments, told, capsys, tmp_path):
    assert call("sweep", *arguments, "--out", tmp_path / "sweep") == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("pmdkit: error: ")
    assert captured.err.count("\n") == 1
    assert told in captured.err
    assert not (tmp_path / "sweep").exists()


def test_an_output_that_exists_is_not_touched(call, tmp_path, capsys):
    (tmp_path / "file").write_text("keep")
    assert call("sweep", "bandit", "needle", "--out", tmp_path / "file") == 2
    assert (tmp_path / "file").read_text() == "keep"
    assert "is a file" in capsys.readouterr().err


def test_dry_run_names_the_runs_and_starts_nothing(call, tmp_path, capsys):
    arguments = ["--over", "tau=0.1,0.5", "--seeds", "2", "--set", "steps=3", "--dry-run", "--out", tmp_path / "sweep"]
    assert call("sweep", "bandit", "needle", *arguments) == 0
    runs = json.loads(capsys.readouterr().out)
    assert [(r["options"]["objective.tau"], r["options"]["run.seed"]) for r in runs] == [
        (0.1, 0), (0.5, 0), (0.1, 1), (0.5, 1),
    ]  # fmt: skip
    assert not (tmp_path / "sweep").exists()


@pytest.mark.slow  # several processes that import torch
def test_a_sweep_ends_in_one_json_value(call, tmp_path, capsys):
    """An exact update of the needle; the pass rate is that of the theory."""
    from pmdkit import theory

    arguments = ["--over", "tau=0.5", "--seeds", "1", "--set", "steps=1", "--json"]
    assert call("sweep", "bandit", "needle", *arguments, "--out", tmp_path / "sweep") == 0
    result = json.loads(capsys.readouterr().out)
    (run,) = result["runs"]
    exact = theory.binary(0.01, 0.5)
    assert run["summary"]["pass_rate_last"] == pytest.approx(1 - 0.99 * (1 - exact.eta), rel=1e-5)
