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


@pytest.mark.slow
def test_every_figure_is_drawn_from_finite_numbers_and_told(drawings):
    for drawing in drawings.values():
        assert all(np.isfinite(values).all() for values in drawing.data.values())
        assert drawing.sentence in drawing.alt


def test_fig5_lines_are_the_theory(drawings):
    data = drawings["fig5-toy"].data
    for tau in (0.05, 0.5):
        for method in theory.METHODS:
            exact = theory.binary(data["p"], tau, method).log_ratio_neg
            np.testing.assert_array_equal(data[f"exact modular-sum tau {tau:g} {method}"], exact)
