"""The study of adaptive temperatures: its runs are those of `train`, and its tables are right."""

import numpy as np
import pytest
from scipy.stats import ttest_rel

from pmdkit import train
from pmdkit_lab.studies.adaptive import FIXED, outcome, recommended, run_job, tables

SMALL = {"env.arms": 8, "env.contexts": 4, "env.dim": 4, "env.traps": 0, "schedule.steps": 3, "schedule.group": 4}
CELL = {"tier": "bandit", "env": "shared-features", "objective": "pmd-mean", "options": SMALL}


def test_what_is_kept_of_a_curve():
    """Blocks of two, the odd step at the end left out; the worst drop is from block to block, or from the start."""
    curve = np.array([0.1, 0.3, 0.6, 0.8, 0.4, 0.5, 0.9])
    kept = outcome(curve, 0.95, 0.25, 2)
    assert kept["curve"] == [0.2, 0.7, 0.45]
    assert (kept["auc"], kept["drop"]) == (pytest.approx(3.6 / 7), pytest.approx(0.25))
    assert (kept["final"], kept["dead"]) == (0.95, 0.25)
    kept = outcome(curve, 0.95, 0.25, 2, before=0.6)
    assert (kept["curve"], kept["drop"]) == ([0.6, 0.2, 0.7, 0.45], pytest.approx(0.4))
    assert outcome(np.array([0.1, 0.2, 0.3]), 0.3, 0.0, 1)["drop"] == 0


def test_a_bandit_run_is_that_of_train(tmp_path):
    found = run_job(CELL, 0.05, 1)
    options = {**SMALL, "objective.tau": 0.05, "env.seed": 1}
    run = train("pmd-mean", "bandit", "shared-features", seed=1, options=options, out=tmp_path / "run")
    assert found["final"] == pytest.approx(run.summary["pass_rate_last"], abs=1e-12)
    assert found["curve"][0] == pytest.approx(run.summary["pass_rate_first"], abs=1e-4)
    assert found["auc"] == pytest.approx(np.mean(found["curve"][1:]), abs=1e-4)


def made_up(cell, arm, aucs):
    return [
        {"cell": cell, "arm": arm, "seed": seed, "auc": auc, "final": 0.9, "drop": 0.0, "dead": 0.0}
        for seed, auc in enumerate(aucs)
    ]


def test_differences_are_paired_and_a_rule_under_two_names_is_compared_once():
    """Two arms with the same runs: one p-value, and Holm counts one comparison less."""
    fixed, up = [0.5, 0.7, 0.6, 0.9], [0.62, 0.79, 0.71, 0.98]
    runs = made_up("c", FIXED, fixed) + made_up("c", "a", up) + made_up("c", "b", up[::-1]) + made_up("c", "twin", up)
    rows = {row["arm"]: row for row in tables(runs)["c"]}
    assert [rows[arm]["twin"] for arm in (FIXED, "a", "b", "twin")] == [None, None, None, "a"]
    assert rows["twin"]["p"] is None
    assert rows["twin"]["auc_gain"] == rows["a"]["auc_gain"]
    assert rows["a"]["auc_gain"]["mean"] == pytest.approx(0.1, abs=1e-12)
    assert rows["a"]["p"] == pytest.approx(2 * ttest_rel(up, fixed).pvalue)
    assert tables(made_up("c", FIXED, fixed) + made_up("c", "same", fixed))["c"][1]["p"] == 1.0


def test_the_stated_rule_wants_two_gains_and_no_loss():
    up, flat = [0.60, 0.71, 0.69, 0.80], [0.50, 0.60, 0.60, 0.70]
    down = [0.40, 0.51, 0.49, 0.60]
    objectives = {"pmd-mean": "pmd-mean", "toy": "pmd-mean", "part": "pmd-part"}

    def verdict(**arm):
        runs = [run for cell in objectives for run in made_up(cell, FIXED, flat)]
        return recommended(tables(runs + [r for c, v in arm.items() for r in made_up(c, "x", v)]), objectives)

    assert verdict(**{"pmd-mean": up, "toy": up, "part": down}) == ["x"]
    assert verdict(**{"pmd-mean": up, "toy": flat, "part": up}) == []
    assert verdict(**{"pmd-mean": flat, "toy": up, "part": up}) == []
    assert verdict(**{"pmd-mean": up, "toy": down, "part": up}) == []
