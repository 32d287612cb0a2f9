"""The parts themselves: what they compute is what their sources say, and a check can say no."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from pmdkit import theory
from pmdkit.figures import draw
from pmdkit.figures.toy_runs import OTHERS, drawn_from, setting, stored
from pmdkit.objectives import OBJECTIVES
from pmdkit.reproducing import Bench, adaptive, exact, starter, trained
from pmdkit.reproducing.beside import beside
from pmdkit.reproducing.checks import checks
from pmdkit.sweeps.pictures.panels import by_setting


@pytest.fixture
def bench(tmp_path):
    folder = tmp_path / "parts" / "part"
    folder.mkdir(parents=True)
    return Bench(tmp_path, folder, 1, lambda sentence: None)


def test_all_statements_hold(bench):
    found = checks(bench)
    assert len(found) >= 12
    assert [check.name for check in found if not check.held] == []


@pytest.mark.parametrize(
    ("change", "names"),
    [
        ("mean", {"Theorem 1", "Theorem 1 with lengths", "mixed KL-chi2"}),
        ("lambda", {"bounds on lambda"}),
        ("bound", {"bound (a)"}),
    ],
)
def test_statements_do_not_hold_of_wrong_mathematics(bench, monkeypatch, change, names):
    """The update a thousandth off; lambda at half; the printed bound in place of the corrected one."""
    monkeypatch.setattr("pmdkit.reproducing.checks.PROBLEMS", 20)
    mean, bound = theory.pmd_mean, theory.mean_bound_as_stated

    def off(*args, **kwargs):
        found = mean(*args, **kwargs)
        if change == "lambda":
            return dataclasses.replace(found, lam=found.lam / 2)
        return dataclasses.replace(found, log_ratio=found.log_ratio * 1.001, probs=found.probs**1.001)

    if change == "bound":
        monkeypatch.setattr(theory, "mean_bound", bound)
    else:
        monkeypatch.setattr(theory, "pmd_mean", off)
    broken = {check.name for check in checks(bench) if not check.held}
    assert names <= broken


def test_objectives_have_a_line_each_and_those_with_a_known_solution_are_recovered(bench, monkeypatch):
    """Three of them: all take ten times as long, and are what the part does in a reproduction."""
    chosen = {name: OBJECTIVES[name] for name in ("pmd-mean", "pmd-part", "grpo")}
    monkeypatch.setattr("pmdkit.objectives.OBJECTIVES", chosen)
    sheet, *found = exact.objectives(bench)
    assert [row[0] for row in sheet.rows] == list(chosen)
    assert {check.name.split(",")[0] for check in found} == {"pmd-mean", "pmd-part"}
    assert all(check.held for check in found)
    assert "KL" in dict(zip(chosen, sheet.rows, strict=True))["pmd-part"][1]


def test_a_figure_comes_with_its_check_against_the_stored_numbers(bench, monkeypatch):
    picture, check = exact.figure("fig1-left")(bench)
    assert check.held
    assert (bench.folder / "fig1-left.png").stat().st_size < 60_000, "few colours"
    assert (bench.folder / "fig1-left.svg").exists()
    assert picture.alt
    changed = {key: values * 1.001 for key, values in draw("fig1-left").data.items()}
    assert not exact.stored("fig1-left", changed).held


def test_tables_keep_every_cell(bench):
    from pmdkit.figures import TABLES, table

    sheets = [piece for piece in exact.tables(bench) if piece.kind == "sheet"]
    assert [sheet.name for sheet in sheets] == [*TABLES, "tab-beside"]
    for sheet in sheets[:-1]:
        assert sheet.rows == [list(row) for row in table(sheet.name).rows]


def test_the_papers_differences_stand_beside_ours():
    """By hand: 19.69 - 17.08 and 19.48 - 10.52 of table main-results; the toy's are paired by seed."""
    sheet = beside()
    first, _, third = sheet.rows
    assert first[1] == "+2.61, +8.96"
    assert first[2] == "+14.27, +9.27"
    assert third[2] == "-", "the paper has no on-policy run of the 30B model"
    own, other = (np.array(setting("sequence", name)["last"]) for name in ("pmd-mean", "grpo"))
    assert first[4].startswith(f"{100 * (own - other).mean():.1f} [")
    assert sheet.scale == "stored"


def test_curves_of_a_record_are_those_of_the_stored_figures(bench, request):
    """The records in benchmarks/results are what the stored file was made from."""
    shutil.copytree(request.config.rootpath / "benchmarks" / "results", bench.sweeps)
    for name in ("tau", "training-curves"):
        found = trained.curves(bench, name)["settings"]
        assert found.keys() == stored()[name]["settings"].keys()
        for label, own in found.items():
            for key in ("prompts", "seeds", "last", "pass_rate", "log_ratio_min"):
                np.testing.assert_allclose(own[key], setting(name, label)[key], rtol=1e-3, atol=1e-3)


def test_training_figures_are_drawn_from_the_runs_of_the_report(bench, request):
    """Three of the five seeds: the numbers are those of three, the title says so, and the stored ones come back."""
    bench.sweeps.mkdir()
    for name in ("tau", "training-curves"):
        record = json.loads((request.config.rootpath / "benchmarks" / "results" / f"{name}.json").read_text())
        record["runs"] = [run for run in record["runs"] if run["seed"] < 3]
        (bench.sweeps / f"{name}.json").write_text(json.dumps(record))
    (eight,) = trained.redrawn(("fig8-toy",), ("tau", "training-curves"))(bench)
    assert eight.about.startswith("3 seeds")
    assert eight.scale == "toy"
    runs = {name: trained.curves(bench, name) for name in ("tau", "training-curves")}
    drawing, seeds = drawn_from(runs, lambda: draw("fig8-toy"))
    assert seeds == 3
    assert "3 seeds" in drawing.figure.get_suptitle()
    assert "5 seeds" not in drawing.figure.get_suptitle()
    grpo = np.array(runs["training-curves"]["settings"]["grpo"]["last"])
    np.testing.assert_allclose(drawing.data["after grpo"][0], grpo.mean())
    assert not OTHERS
    assert "5 seeds" in draw("fig8-toy").figure.get_suptitle()


def test_runs_with_other_numbers_of_seeds_are_refused():
    runs = {"tau": {"settings": {"a": {"seeds": [0, 1]}, "b": {"seeds": [0]}}}}
    with pytest.raises(ValueError, match=r"the runs have \[1, 2\] seeds"):
        drawn_from(runs, lambda: draw("fig8-toy"))


def test_the_starter_is_drawn_and_tabulated_by_seed():
    """Two seeds of made-up runs in the form of a sweep's record: means, and differences paired by seed."""
    last = {"pmd-mean": (0.6, 0.8), "pmd-part": (0.5, 0.4), "grpo": (0.7, 0.8)}
    runs = [
        {
            "state": "finished",
            "seed": seed,
            "options": starter.FIXED | options,
            "summary": {
                "pass_rate_first": 0.3,
                "pass_rate_last": last[name][seed],
                "pass_rate_mean": 0.5,
                "log_ratio_min": -1.0 - seed,
            },
            "curve": {"step": [1, 2], "pass_rate": [0.3, last[name][seed]], "response_length": [18.0, 20.0 + seed]},
        }
        for name, options in starter.METHODS.items()
        for seed in (1, 0)
    ]
    settings = by_setting({"settings": starter.METHODS, "runs": runs})
    drawing = starter.draw(settings)
    assert drawing.figure.get_suptitle().startswith("starter scale")
    assert "2 seeds" in drawing.figure.get_suptitle()
    np.testing.assert_allclose(drawing.data["pass_rate pmd-part"][1], [0.3, 0.45])
    assert "PMD-part 0.450" in drawing.sentence
    mean, part, grpo = starter.table(settings, "2 seeds").rows
    assert mean[4] == "-"
    assert part[4].startswith("-0.250 [")
    assert part[4].endswith("larger on 0 of 2 seeds")
    assert grpo[4].endswith("larger on 1 of 2 seeds")
    assert grpo[5] == "-1.5"


def test_a_tier_of_the_adaptive_study_becomes_tables(bench, monkeypatch):
    """One sheet for each setting; the fixed tau has no difference to itself."""
    end = {"mean": 0.5, "low": 0.4, "high": 0.6}
    fixed = {"arm": "fixed", "seeds": 3, "p": None, **dict.fromkeys(("auc", "final", "drop", "dead"), end)}
    rule = fixed | {"arm": "contraction", "p": 0.03, "auc_gain": end | {"low": None}}

    def study(tier, out, **more):
        assert (tier, out, more["resume"]) == ("toy", bench.out / "adaptive" / "toy", True)
        return {"tables": {"sort, pmd-mean": [fixed, rule]}}

    monkeypatch.setattr("pmdkit.sweeps.adaptive.study", study)
    (sheet,) = adaptive.adaptive("toy")(bench)
    assert sheet.name == "adaptive-toy-sort-pmd-mean"
    assert sheet.rows[0][-2:] == ["-", "-"]
    assert sheet.rows[1] == ["contraction", *["0.500 [0.400, 0.600]"] * 4, "0.500", "0.03"]
