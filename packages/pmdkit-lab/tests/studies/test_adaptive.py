"""The study of adaptive temperatures: its runs are those of `train`, its tables are right, a kill costs one run."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import ttest_rel

from pmdkit import train
from pmdkit.launchers import Launcher
from pmdkit_lab.studies.adaptive import (
    CELLS,
    FIXED,
    StudyCell,
    outcome,
    recommended,
    run_job,
    study,
    tables,
    tuning,
)

SMALL = {"env.arms": 8, "env.contexts": 4, "env.dim": 4, "env.traps": 0, "schedule.steps": 3, "schedule.group": 4}
RULE = ({"rule": "pass-rate", "scale": 0.1}, {"rule": "pass-rate", "scale": 1.0})
CELL = StudyCell("bandit", "shared-features", "pmd-mean", SMALL, 2, 2, arms={FIXED: (0.05, 0.5), "pass-rate": RULE})


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


def test_every_arm_is_tuned_over_as_many_values_as_the_fixed_tau_and_on_seeds_of_its_own():
    for cells in CELLS.values():
        for cell in cells.values():
            counts = {arm: len(values) for arm, values in cell.arms.items() if "untuned" not in arm}
            assert set(counts.values()) == {counts[FIXED]}
        assert min(job.seed for job in tuning(cells)) > max(cell.seeds for cell in cells.values())


def test_a_bandit_run_is_that_of_train(tmp_path):
    found = run_job(CELL, 0.05, 1, tmp_path)
    options = {**SMALL, "objective.tau": 0.05, "env.seed": 1}
    run = train("pmd-mean", "bandit", "shared-features", seed=1, options=options, out=tmp_path / "run")
    assert found["final"] == pytest.approx(run.summary["pass_rate_last"], abs=1e-12)
    assert found["curve"][0] == pytest.approx(run.summary["pass_rate_first"], abs=1e-4)
    assert found["auc"] == pytest.approx(np.mean(found["curve"][1:]), abs=1e-4)


@pytest.mark.slow
def test_a_toy_run_is_that_of_train(tmp_path):
    """Warm start included: the runs of a seed share its state, and must end where a run of their own ends."""
    small = {"model.dimension": 16, "model.heads": 2, "schedule.prompts": 8, "schedule.group": 4, "schedule.steps": 3}
    small |= {"warm_start.pass_rate": 0.2, "warm_start.max_steps": 200, "warm_start.look": 5}
    cell = StudyCell("toy", "modular-sum", "pmd-mean", small, 1, 1)
    for tau in (0.05, {"rule": "contraction", "eta": 0.9}):
        found = run_job(cell, tau, 3, tmp_path)
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        run = train("pmd-mean", "toy", "modular-sum", seed=3, options={**small, "objective.tau": tau}, out=out)
        assert found["final"] == run.summary["pass_rate_last"]
        assert found["auc"] == pytest.approx(np.mean([row["pass_rate"] for row in run.metrics]), abs=1e-12)


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


@pytest.mark.nightly  # it starts two processes that import torch
def test_the_best_value_is_used_on_fresh_seeds_and_processes_change_nothing(tmp_path):
    alone = study("bandit", tmp_path / "alone", cells={"c": CELL})
    best = alone["best"]["c"]
    for arm, tau in best.items():
        means = {json.dumps(row["tau"]): row["auc"] for row in alone["tuning"] if row["arm"] == arm}
        assert means[json.dumps(tau)] == max(means.values())
    assert {run["seed"] for run in alone["runs"]} == {0, 1}
    assert study("bandit", tmp_path / "many", cells={"c": CELL}, launcher=Launcher(2)) == alone


@pytest.mark.slow
def test_kill_9_costs_one_run(tmp_path):
    """Killed after its third run, with a line cut off in the journal: the rest is made, the result is the same."""
    program = f"""
from pathlib import Path
from pmdkit_lab.studies.adaptive import study
from tests_cell import CELL
study("bandit", Path({str(tmp_path / "killed")!r}), cells={{"c": CELL}})
"""
    (tmp_path / "tests_cell.py").write_text(
        f"from pmdkit_lab.studies.adaptive import StudyCell\nCELL = {replace(CELL)!r}\n", encoding="utf-8"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    child = subprocess.Popen([sys.executable, "-c", program], env=environment)
    journal = tmp_path / "killed" / "runs.jsonl"
    while not journal.exists() or journal.read_bytes().count(b"\n") < 3:
        assert child.poll() is None or journal.read_bytes().count(b"\n") >= 3
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)
    child.wait()
    whole = journal.read_bytes().count(b"\n")
    with open(journal, "ab") as file:
        file.write(b'{"key": "[\\"c\\", ')
    said: list[str] = []
    found = study("bandit", tmp_path / "killed", cells={"c": CELL}, resume=True, log=said.append)
    assert len(said) <= 12 - whole
    assert found == study("bandit", tmp_path / "whole", cells={"c": CELL})
