"""`pmdkit compare`: run folders in, a table out."""

import json

import pytest

from pmdkit import train


@pytest.fixture
def runs(tmp_path):
    """Two temperatures on two seeds, from draws."""
    for tau in (0.1, 1.0):
        for seed in (0, 1):
            options = {"objective.tau": tau}
            place = tmp_path / "runs" / f"{tau}-{seed}"
            train("pmd-mean", "bandit", "two-hills", steps=2, group=4, seed=seed, options=options, out=place)
    return tmp_path / "runs"


def test_run_folders_are_compared_pair_by_pair(call, runs, capsys):
    assert call("compare", *sorted(runs.iterdir()), "--metric", "pass_rate_mean", "--by", "tau", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    rows = {
        path.name: [json.loads(line)["pass_rate"] for line in (path / "metrics.jsonl").read_text().splitlines()]
        for path in runs.iterdir()
    }
    mean = {name: sum(rates) / len(rates) for name, rates in rows.items()}
    first, second = result["arms"]
    assert first["arm"] == "tau 0.1"
    assert second["difference"] == pytest.approx((mean["1.0-0"] - mean["0.1-0"] + mean["1.0-1"] - mean["0.1-1"]) / 2)
    assert second["wins"] == sum(mean[f"1.0-{seed}"] > mean[f"0.1-{seed}"] for seed in (0, 1))
