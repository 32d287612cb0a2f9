"""The old experiments at tuned rates, and what the study of temperatures left open: fair protocols, right tables."""

import json
import sys
from pathlib import Path

import numpy as np

from pmdkit_lab.studies import adaptive

BENCHMARKS = Path(__file__).parents[4] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
import adaptive_follow_up as follow_up  # noqa: E402
import tuned  # noqa: E402

SMALL = {"env.arms": 8, "env.contexts": 4, "env.dim": 4, "env.traps": 0, "schedule.steps": 3, "schedule.group": 4}


def found_of(arms, score):
    """Runs of some arms as `tuned` keeps them, each with its score as mean and as last pass rate."""
    return [
        {"arm": arm, "lr": lr, "seed": seed, "mean": score(arm, lr, seed), "last": score(arm, lr, seed), "seconds": 1.0}
        for arm in arms
        for seed in (*tuned.TUNING, 0, 1, 2)
        for lr in tuned.RATES
    ]


def test_the_follow_up_compares_tuned_values_on_seeds_that_chose_nothing():
    study = json.loads((BENCHMARKS / "results" / "adaptive-tau-bandit.json").read_text(encoding="utf-8"))
    first = follow_up.CELLS["pmd-mean, 122 pairs"]
    assert {arm: values[0] for arm, values in first.arms.items()} == {
        arm: study["best"]["pmd-mean"][arm] for arm in first.arms
    }
    gains = {row["arm"]: row["auc_gain"]["mean"] for row in study["tables"]["pmd-mean"] if "auc_gain" in row}
    assert set(sorted(gains, key=gains.get)[-3:]) == set(first.arms) - {adaptive.FIXED}
    used = {run["seed"] for run in study["runs"]}
    for name, cell in follow_up.CELLS.items():
        seeds = {job.seed for job in adaptive.comparison({name: cell}, {name: dict.fromkeys(cell.arms, 0.0)})}
        assert len(seeds) == cell.seeds
        assert not seeds & used
        assert max(seeds) < adaptive.TUNING
        counts = {len(values) for arm, values in cell.arms.items() if cell.tuning}
        assert len(counts) <= 1, "every arm is tuned over as many values"


def test_the_words_of_the_follow_up_follow_from_margin_and_level():
    rng = np.random.default_rng(3)
    fixed = rng.uniform(0.8, 0.9, 40)
    arms = {adaptive.FIXED: fixed, "same": fixed + rng.normal(0, 0.01, 40), "more": fixed + rng.normal(0.03, 0.01, 40)}
    arms["noisy"] = fixed + rng.normal(0, 0.1, 40)
    runs = [
        {"cell": "c", "arm": arm, "seed": seed, "auc": value, "final": 0.9, "drop": 0.0, "dead": 0.0}
        for arm, values in arms.items()
        for seed, value in enumerate(values)
    ]
    words = follow_up.outcomes(runs, adaptive.tables(runs)["c"])
    assert {arm: row["outcome"] for arm, row in words.items()} == {
        "same": "no difference",
        "more": "better",
        "noisy": "undecided",
    }
    assert words["noisy"]["seeds_needed"] > 40
