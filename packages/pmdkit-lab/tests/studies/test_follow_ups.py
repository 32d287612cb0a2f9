"""The old experiments at tuned rates, and what the study of temperatures left open: fair protocols, right tables."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

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


def test_a_setting_runs_at_its_best_rate_and_says_where_that_is_an_end(monkeypatch):
    """Scores fall with the distance from 3e-4, from 1e-2 for one arm; a seed adds the same to all."""
    arms: dict[str, dict[str, float]] = {"one": {}, "other": {}}
    monkeypatch.setattr(tuned, "ARMS", arms)
    monkeypatch.setattr(tuned, "QUESTIONS", {"which": [("one", "other")]})

    def score(arm, lr, seed):
        far = np.log10(lr / (1e-2 if arm == "other" else 3e-4))
        return 0.5 - 0.1 * far**2 + 0.01 * (seed % 3) + (0.2 + 0.001 * seed if arm == "one" else 0)

    found = tuned.tables(found_of(arms, score), 3)
    assert (found["tuned"]["one"]["lr"], found["tuned"]["one"]["edge"]) == (3e-4, False)
    assert (found["tuned"]["other"]["lr"], found["tuned"]["other"]["edge"]) == (1e-2, True)
    (difference,) = found["questions"]["which"]
    assert difference["mean"]["mean"] == pytest.approx(0.201)
    assert 0.19 < difference["mean"]["low"] < 0.201 < difference["mean"]["high"] < 0.21


def test_a_run_of_the_script_goes_on_and_is_that_of_its_arm(monkeypatch, tmp_path):
    """Two steps of two ministeps: the record is written run by run, and nothing is made twice."""
    small = {"schedule.steps": 2, "schedule.prompts": 4, "schedule.ministeps": 2, "schedule.group": 4}
    arms = {"pmd-mean": {"objective.name": "pmd-mean", **small}, "grpo": {"objective.name": "grpo", **small}}
    monkeypatch.setattr(tuned, "ARMS", arms)
    monkeypatch.setattr(tuned, "RATES", (1e-3, 3e-3))
    monkeypatch.setattr(tuned, "MODEL", {"model.dimension": 16, "model.heads": 2, "model.layers": 1})
    monkeypatch.setattr(tuned, "QUESTIONS", {"which": [("grpo", "pmd-mean")]})
    place, made, run = tmp_path / "tuned.json", [], tuned.run

    def stopped(*setting):
        made.append(setting)
        if len(made) == 3:
            raise KeyboardInterrupt
        return run(*setting)

    monkeypatch.setattr(tuned, "run", stopped)
    with pytest.raises(KeyboardInterrupt):
        tuned.main(place, 2)
    assert len(json.loads(place.read_text())["runs"]) == 2
    tuned.main(place, 2)
    kept = json.loads(place.read_text())
    assert len(kept["runs"]) == 2 * 2 * 2 + 2 * 2 == len(made) - 1
    assert {"tuning", "tuned", "questions"} <= set(kept)


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


def test_the_follow_up_writes_its_record_and_gives_the_stated_words(monkeypatch, tmp_path):
    cell = replace(follow_up.CELLS["pmd-part, laws"], options=SMALL, seeds=3, tuning=1)
    monkeypatch.setattr(follow_up, "CELLS", {"small, pmd-part": cell})
    follow_up.study("small, pmd-part", tmp_path)
    found = json.loads((tmp_path / "adaptive-tau-small-pmd-part.json").read_text())
    assert {run["seed"] for run in found["runs"]} == {100, 101, 102}
    assert list(tmp_path.glob("*.jsonl")) == []
    assert set(found["outcome"]) <= set(cell.arms) - {adaptive.FIXED}
    assert found["stated"] == {"margin": 0.01, "level": 0.05}


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
