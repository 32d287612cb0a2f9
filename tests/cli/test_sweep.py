"""`pmdkit sweep`: a dry run starts nothing, a sweep ends in one JSON value."""

import json

import pytest


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
