"""`pmdkit sweep`: what a dry run prints."""

import json


def test_dry_run_names_the_runs_and_starts_nothing(call, tmp_path, capsys):
    arguments = ["--over", "tau=0.1,0.5", "--seeds", "2", "--set", "steps=3", "--dry-run", "--out", tmp_path / "sweep"]
    assert call("sweep", "bandit", "needle", *arguments) == 0
    runs = json.loads(capsys.readouterr().out)
    assert [(r["options"]["objective.tau"], r["options"]["run.seed"]) for r in runs] == [
        (0.1, 0), (0.5, 0), (0.1, 1), (0.5, 1),
    ]  # fmt: skip
    assert not (tmp_path / "sweep").exists()
