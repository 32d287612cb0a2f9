"""The parts themselves: what they compute is what their sources say."""

import json
from dataclasses import replace

import numpy as np
import pytest

from pmdkit.launchers import ONE
from pmdkit.objectives import OBJECTIVES
from pmdkit_lab.figures import draw
from pmdkit_lab.figures.training_curves import METHODS
from pmdkit_lab.reproduce import PartContext, parts, training_parts
from pmdkit_lab.studies.experiments import EXPERIMENTS


@pytest.fixture
def context(tmp_path):
    folder = tmp_path / "parts" / "part"
    folder.mkdir(parents=True)
    return PartContext(tmp_path, folder, ONE, lambda sentence: None)


@pytest.mark.slow
def test_objectives_have_a_line_each_and_those_with_a_known_solution_are_recovered(context, monkeypatch):
    """Three of them: all take ten times as long, and are what the part does in a reproduction."""
    chosen = {name: OBJECTIVES[name] for name in ("pmd-mean", "pmd-part", "grpo")}
    monkeypatch.setattr("pmdkit.objectives.OBJECTIVES", chosen)
    sheet, *found = parts.objectives_solved(context)
    assert [row[0] for row in sheet.rows] == list(chosen)
    assert {check.name.split(",")[0] for check in found} == {"pmd-mean", "pmd-part"}
    assert all(check.held for check in found)
    assert "KL" in dict(zip(chosen, sheet.rows, strict=True))["pmd-part"][1]


@pytest.mark.slow
def test_training_figures_are_drawn_from_the_runs_of_the_report(context, request):
    """Three of the five seeds: the numbers are those of three, the title says so, and the stored ones come back."""
    context.sweeps.mkdir()
    for name in ("tau", "training-curves"):
        record = json.loads((request.config.rootpath / "benchmarks" / "results" / f"{name}.json").read_text())
        record["runs"] = [run for run in record["runs"] if run["seed"] < 3]
        (context.sweeps / f"{name}.json").write_text(json.dumps(record))
    (eight,) = training_parts.redrawn(("fig8-toy",), ("tau", "training-curves"), context)
    assert eight.scale == "toy"
    runs = {name: training_parts.curves(context, name) for name in ("tau", "training-curves")}
    drawing = draw("fig8-toy", runs)
    assert "3 seeds" in drawing.figure.get_suptitle()
    grpo = np.array(runs["training-curves"]["settings"]["grpo"]["last"])
    np.testing.assert_allclose(drawing.data["after grpo"][0], grpo.mean())
    assert "5 seeds" in draw("fig8-toy").figure.get_suptitle()


@pytest.mark.slow
def test_the_starter_is_drawn_from_its_runs(context, request, monkeypatch):
    stored = json.loads((request.config.rootpath / "benchmarks" / "results" / "starter.json").read_text())
    monkeypatch.setattr(training_parts, "run_all", lambda *asked: stored)
    (picture,) = training_parts.starter(context)
    assert (picture.name, picture.about) == ("fig7-starter", "3 seeds, 0 to 2")
    assert (context.folder / "fig7-starter.svg").exists()


@pytest.mark.nightly  # minutes: a whole experiment
@pytest.mark.slow
def test_an_experiment_is_run_and_drawn(context, monkeypatch):
    """Two steps of each method with two seeds; a second call runs nothing again."""
    short = {"schedule.steps": 2, "schedule.prompts": 8, "schedule.ministeps": 2}
    whole = EXPERIMENTS["sequence"]
    settings = {name: {**whole.settings[name], **short} for name in METHODS}
    monkeypatch.setitem(EXPERIMENTS, "sequence", replace(whole, settings=settings))
    monkeypatch.setattr("pmdkit_lab.studies.experiments.SEEDS", range(2))
    (picture,) = training_parts.experiment("sequence", context)
    assert picture.about == "2 seeds"
    runs = {path: path.stat().st_mtime_ns for path in context.sweeps.glob("runs/*/summary.json")}
    assert len(runs) == 2 * len(METHODS)
    training_parts.experiment("sequence", context)
    assert runs == {path: path.stat().st_mtime_ns for path in runs}
