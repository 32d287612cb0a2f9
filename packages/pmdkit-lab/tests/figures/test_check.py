"""`pmdkit figure --check`: what is stored is what comes out, and what is off is found and told."""

import json

import numpy as np
import pytest

from pmdkit import theory
from pmdkit.cli import main
from pmdkit_lab.figures import FIGURES, TABLES
from pmdkit_lab.figures.check import EXPECTED, check, compare, digest, numbers, tolerance, write

EVERYTHING = [*FIGURES, *TABLES]
STORED = json.loads(EXPECTED.read_text(encoding="utf-8"))


def call(*arguments: str) -> int:
    """Exit code of a command."""
    with pytest.raises(SystemExit) as left:
        main(["figure", *arguments])
    return int(left.value.code or 0)


@pytest.mark.slow
def test_every_figure_and_table_is_stored_and_comes_out_the_same(capfd, tmp_path) -> None:
    assert list(STORED) == EVERYTHING
    assert call("--check") == 0
    out, err = capfd.readouterr()
    assert out.splitlines() == [f"{name}: as stored" for name in EVERYTHING]
    assert not err
    assert not list(tmp_path.iterdir()), "a check writes nothing"


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERYTHING)
def test_a_change_in_any_array_is_found(name) -> None:
    """Every array in turn: its largest number 0.1 % off, or one more row."""
    found = dict(numbers(name))
    assert compare(name, found, STORED[name]) == []
    for key, values in found.items():
        kept = np.array(values, dtype=float, order="C")  # so that ravel is a view
        flat = kept.ravel()
        kept_places = np.unique(np.linspace(0, len(flat) - 1, 9).round().astype(int))
        place = kept_places[np.nanargmax(np.abs(flat[kept_places]))]
        flat[place] += max(1e-3 * abs(flat[place]), 1e-3)
        off = compare(name, found | {key: kept}, STORED[name])
        assert len(off) == 1
        assert f"{name}: {key} is" in off[0]
        longer = np.concatenate([np.ravel(values), [0.0]])
        assert "has shape" in compare(name, found | {key: longer}, STORED[name])[0]


def test_an_array_too_many_or_too_few_is_found() -> None:
    found = dict(numbers("fig1-left"))
    more = found | {"new": np.ones(2)}
    assert "is not among the stored numbers" in compare("fig1-left", more, STORED["fig1-left"])[0]
    found.pop("p")
    assert "was not computed" in compare("fig1-left", found, STORED["fig1-left"])[0]


def test_a_number_that_is_none_differs_from_one() -> None:
    stored = {"x": digest(np.array([np.nan, 1.0]))}
    assert compare("fig2", {"x": np.array([np.nan, 1.0])}, stored) == []
    assert "is 2.0 where None is stored" in compare("fig2", {"x": np.array([2.0, 1.0])}, stored)[0]


def test_wrong_mathematics_is_exit_4_and_one_sentence(monkeypatch, capfd) -> None:
    """PMD-mean's ratios a millionth off."""
    right = theory.binary

    def wrong(p, tau, method="pmd-mean"):
        found = right(p, tau, method)
        return type(found)(found.log_ratio_pos * (1 + 1e-6), *(getattr(found, name) for name in list(vars(found))[1:]))

    monkeypatch.setattr(theory, "binary", wrong)
    assert call("--check", "fig2") == 4
    out, err = capfd.readouterr()
    assert out.startswith("fig2: ")
    assert "off" in out
    assert "fig2: exact pmd-part right p is" in err
    assert err.count("\n") == 1


def test_json_is_one_value(capfd) -> None:
    assert call("--check", "tab2-speed", "--json") == 0
    told = json.loads(capfd.readouterr().out)
    assert told == [{"name": "tab2-speed", "paper": "tab:efficiency_comparison", "off": []}]


def test_storing_again_gives_the_same_file(tmp_path, monkeypatch) -> None:
    """For what has no draws and no integrator."""
    names = ["fig1-left", "fig2", "tab1-scores"]
    monkeypatch.setattr("pmdkit_lab.figures.check.EXPECTED", tmp_path / "expected.json")
    write(names)
    again = json.loads((tmp_path / "expected.json").read_text())
    for name in names:
        for key, values in again[name].items():
            assert values["shape"] == STORED[name][key]["shape"]
    assert "has no stored numbers" in check("fig1-right")[0]


def test_exact_figures_are_held_to_the_digits_of_their_solvers() -> None:
    for name in EVERYTHING:
        assert tolerance(name, "anything").relative <= 1e-6
    assert tolerance("fig1-right", "flow pmd-mean").relative == 0
