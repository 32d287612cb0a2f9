"""The training figures: their numbers are those of the stored records, and say what the ledger says of them."""

import numpy as np
import pytest

from pmdkit import theory
from pmdkit.sweeps import record
from pmdkit_lab import figures
from pmdkit_lab.figures.training_curves import METHODS, setting, stored
from pmdkit_lab.studies.settings import by_setting

NAMES = [name for name, entry in figures.FIGURES.items() if entry.source in ("toy", "starter")]


@pytest.fixture(scope="module")
def drawings():
    return {name: figures.draw(name) for name in NAMES}


@pytest.fixture
def results(request):
    return request.config.rootpath / "benchmarks" / "results"


@pytest.mark.parametrize("experiment", ["training-curves", "tau", "sequence"])
def test_the_stored_curves_are_those_of_the_benchmarks(experiment, results):
    """Four digits of every setting, seed and point."""
    found = by_setting(record.read(results / f"{experiment}.json"))
    assert set(stored()[experiment]["settings"]) == set(found)
    for label, runs in found.items():
        own = setting(experiment, label)
        assert own["seeds"] == [run["seed"] for run in runs] == list(range(5))
        np.testing.assert_allclose(own["last"], [run["summary"]["pass_rate_last"] for run in runs], rtol=1e-3)
        for key in ("pass_rate", "log_ratio_min", "response_length"):
            np.testing.assert_allclose(own[key], [run["curve"][key] for run in runs], rtol=1e-3, atol=1e-3)


def test_votes_are_of_the_same_runs():
    """Avg@32 of the repeated runs is the pass rate after training of the stored ones, to the luck of other draws."""
    for label in METHODS:
        of = setting("sequence", label)
        measured = np.array(of["measured"])
        np.testing.assert_allclose(measured[:, 0], of["last"], atol=0.06)
        assert (measured[:, 1] >= measured[:, 0]).all()
        assert np.array(of["entropy"]).shape == np.array(of["pass_rate"]).shape


def test_fig4_pmd_part_stays_at_chance_at_small_temperatures_only(drawings):
    data = drawings["fig4-toy"].data
    after = {
        (method, tau): data[f"{method} panel, {method} tau = {tau}, after"][0]
        for method in ("pmd-mean", "pmd-part") for tau in ("0.005", "0.05", "0.5", "2")
    }  # fmt: skip
    assert max(after["pmd-part", tau] for tau in ("0.005", "0.05")) < 0.2
    assert min(after["pmd-part", tau] for tau in ("0.5", "2")) > 0.9
    assert min(after["pmd-mean", tau] for tau in ("0.005", "0.05", "0.5")) > 0.9


def test_fig5_lines_are_the_theory(drawings):
    data = drawings["fig5-toy"].data
    for tau in (0.05, 0.5):
        for method in theory.METHODS:
            exact = theory.binary(data["p"], tau, method).log_ratio_neg
            np.testing.assert_array_equal(data[f"exact modular-sum tau {tau:g} {method}"], exact)


def test_fig7_ranks_nothing_but_shows_all_panels(drawings):
    """Six columns for each of four methods; intervals of the best and the worst Avg@32 overlap."""
    data = drawings["fig7-toy"].data
    assert len(data) == 24
    low, high = (
        np.array([data[f"Avg@32 {name}"][side] for name in ("pmd-mean", "grpo", "gspo", "rloo")]) for side in (1, 2)
    )
    assert low.max() < high.min()


def test_fig8_both_temperatures_learn(drawings):
    data = drawings["fig8-toy"].data
    for name in ("pmd-mean 0.005", "pmd-mean 0.05", "grpo"):
        assert data[f"after {name}"][0] > 0.9
        assert data[f"pass_rate {name}"][1, 0] < 0.3
