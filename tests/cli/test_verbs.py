"""What the verbs print: one JSON value where asked, numbers that are the theory's, the tour from end to end."""

import json

import numpy as np
import pytest

from pmdkit import theory
from pmdkit.cli import main


def test_theory_prints_both_updates_and_both_scales(printed):
    told = json.loads(printed("theory", "--p", 0.01, "--tau", 0.05, "--json"))
    assert (told["tau_on_01"], told["tau_on_pm1"]) == (0.05, 0.1)
    for method in ("pmd-mean", "pmd-part"):
        exact = theory.binary(0.01, 0.05, method)
        np.testing.assert_allclose(told[method]["log_ratio_neg"], exact.log_ratio_neg, rtol=1e-12)
        np.testing.assert_allclose(told[method]["pass_rate_after"], 0.01 * np.exp(exact.log_ratio_pos), rtol=1e-9)
    assert told["pmd-mean"]["anchor"] == 0
    assert told["pmd-part"]["anchor"] == theory.anchor(0.01, 0.05, 16) > 0.05  # below the threshold it pushes
    assert told["pmd-part"]["anchor_threshold"] > 0.05


def test_lists_are_complete(printed):
    from pmdkit.objectives import OBJECTIVES
    from pmdkit.specs import find

    assert [row["name"] for row in json.loads(printed("objectives", "--json"))] == list(OBJECTIVES)
    shown = {(row["tier"], row["name"]) for row in json.loads(printed("envs", "--json"))}
    assert shown == {(tier, name) for tier in find.SHELVES for name in find.names(tier)}


def test_the_defaults_that_help_states_are_those_of_the_shelf(printed):
    from pmdkit.specs import BanditSpec, ToySpec, find

    tiers = {"bandit": BanditSpec, "toy": ToySpec}
    specs = {tier: [sort.read(name) for name in find.names(tier)] for tier, sort in tiers.items()}
    taus = [spec.objective["tau"] for each in specs.values() for spec in each]
    assert taus.count(0.05) > 0.8 * len(taus)
    assert {spec.objective["name"] for each in specs.values() for spec in each} == {"pmd-mean"}
    bandits = {(s.schedule.prompts, s.schedule.group, s.schedule.ministeps, s.run.seed) for s in specs["bandit"]}
    assert bandits == {(None, None, 1, 0)}
    assert "mostly 0.05" in " ".join(printed("bandit", "--help").replace("│", " ").split())


def test_doctor_checks_the_solver_and_names_remedies(printed, monkeypatch):
    from pmdkit import extras

    monkeypatch.setattr("pmdkit.cli.doctor.version_of", lambda name: None if name == "peft" else "1")
    assert json.loads(printed("doctor", "--json"))["exact"]["holds"]
    assert f"lora: {extras.remedy('lora')}\n" in printed("doctor")


@pytest.mark.slow
def test_a_run_ends_with_theory_beside_measurement(printed, tmp_path):
    """The exact update reaches all of what the theory predicts for that pass rate; the picture is drawn later."""
    run = tmp_path / "run"
    text = printed("bandit", "needle", "--steps", 1, "--out", run)
    assert "0.379419" in text
    assert text.count("100%") == 2
    assert not (run / "figures").exists()
    printed("figure", run)
    for kind in ("png", "svg"):
        assert (run / "figures" / f"run.{kind}").stat().st_size > 1000


def test_the_shell_completes_environments_and_recipes(printed):
    """By cyclopts' own protocol: what is offered for the last word."""
    for words, name in ((("bandit", "ne"), "needle"), (("llm", "sta"), "starter-moe")):
        assert name in [line.split("\t")[0] for line in printed("__complete", *words).splitlines()]


@pytest.mark.nightly
def test_the_tour_goes_through_and_draws(printed, tmp_path):
    text = printed("tour", "--out", tmp_path / "tour")
    assert "mean reward 1.000: all on the best arm" in text  # PMD-part; PMD-mean stays above the average
    assert "mean reward 0.86" in text
    assert (tmp_path / "tour" / "tour.png").exists()
    summary = json.loads((tmp_path / "tour" / "from-draws" / "summary.json").read_text())
    assert summary["pass_rate_last"] > 0.9
    spoken = json.loads((tmp_path / "tour" / "language-model" / "summary.json").read_text())
    assert spoken["pass_rate_last"] >= spoken["pass_rate_first"] + 0.15


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("toy", "needs one of addition, "),
        ("llm", "name one of calculator, "),
        ("plot runs/x", "try: pmdkit figure RUN"),
        ("help toy", "try: pmdkit toy --help"),
        ("learn open 101", "pmdkit learn show 101.1"),
    ],
)
def test_what_one_tries_first_points_the_right_way(words, says, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(words.split())
    assert stopped.value.code == 2
    assert says in capsys.readouterr().err
