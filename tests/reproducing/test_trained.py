"""Real runs behind the training figures: a sweep of an experiment, its votes, and an experiment that is no grid."""

from dataclasses import replace

import numpy as np
import pytest

from pmdkit.figures.training_panels import METHODS
from pmdkit.observe.folder import read_json
from pmdkit.reproducing import Bench, trained
from pmdkit.sweeps.experiments import EXPERIMENTS


@pytest.fixture
def bench(tmp_path):
    folder = tmp_path / "parts" / "part"
    folder.mkdir(parents=True)
    return Bench(tmp_path, folder, 1, lambda sentence: None)


@pytest.mark.slow
def test_an_experiment_is_run_drawn_and_asked_for_votes(bench, monkeypatch):
    """Two steps of each method with two seeds; a second call runs nothing again."""
    short = {"schedule.steps": 2, "schedule.prompts": 8, "schedule.ministeps": 2}
    whole = EXPERIMENTS["sequence"]
    settings = {name: {**whole.settings[name], **short} for name in METHODS}
    monkeypatch.setitem(EXPERIMENTS, "sequence", replace(whole, settings=settings))
    (picture,) = trained.experiment("sequence", 2)(bench)
    assert picture.about == "2 seeds"
    runs = {path: path.stat().st_mtime_ns for path in bench.sweeps.glob("runs/*/summary.json")}
    assert len(runs) == 2 * len(METHODS)
    trained.experiment("sequence", 2)(bench)
    assert runs == {path: path.stat().st_mtime_ns for path in runs}
    monkeypatch.setattr(trained, "VOTES", 8)
    found = trained.curves(bench, "sequence")["settings"]
    trained.deepen(bench, "sequence", found)
    for name in METHODS:
        average, best, majority = np.array(found[name]["measured"]).T
        assert (best >= average).all()
        assert ((majority >= 0) & (majority <= 1)).all()
        assert np.array(found[name]["entropy"]).shape == np.array(found[name]["pass_rate"]).shape == (2, 2)
    (seven,) = trained.redrawn(("fig7-toy",), ("sequence",), votes=True)(bench)
    assert seven.about.startswith("2 seeds")


@pytest.mark.slow
def test_what_a_token_costs_is_measured_here(bench):
    (picture,) = trained.alone("speed", 2, levels=(1, 16))(bench)
    assert picture.scale == "toy"
    runs = read_json(bench.sweeps / "speed.json")["runs"]
    assert {(run["seed"], run["staleness"]) for run in runs} == {(0, 1), (0, 16), (1, 1), (1, 16)}
    assert all(run["ms_per_token_update"] > 0 for run in runs)
