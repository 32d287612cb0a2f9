"""Temperature rules as options of a run: named on the command line, refined by dotted keys, the same in every tier."""

import pytest

from pmdkit import train
from pmdkit.objectives import TAUS
from pmdkit.resolve import resolve


def test_a_rule_by_name_and_an_option_of_it():
    spec, objective = resolve("bandit", "needle", {"objective.tau": "pass-rate", "objective.tau.scale": 0.5})
    assert objective.tau == TAUS["pass-rate"](scale=0.5)
    assert spec.objective["tau"]["scale"] == 0.5
    again, _ = resolve("bandit", "needle", {"objective.tau": spec.objective["tau"], "objective.tau.floor": 0.2})
    assert (again.objective["tau"]["scale"], again.objective["tau"]["floor"]) == (0.5, 0.2)


def test_constant_contraction_holds_on_every_context_of_a_bandit(tmp_path):
    """One exact update at eta = 0.7 closes 0.7 of each context's gap, from pass rates 0.01 to 0.9."""
    run = train(
        "pmd-mean",
        "bandit",
        "pass-rates",
        steps=1,
        out=tmp_path / "run",
        options={"objective.tau": {"rule": "contraction", "eta": 0.7, "floor": 1e-9}},
    )
    for bucket in run.metrics[0]["gauge"]:
        assert bucket["prompts"] > 0
    first, last = run.summary["pass_rate_first"], run.summary["pass_rate_last"]
    assert 1 - last == pytest.approx(0.3 * (1 - first), rel=1e-9)
