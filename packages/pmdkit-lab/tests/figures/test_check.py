"""`pmdkit figure --check`: what is stored is what comes out, and what is off is found and told."""

import json

import numpy as np
import pytest

from pmdkit import theory
from pmdkit.cli import main
from pmdkit_lab.figures import FIGURES, TABLES
from pmdkit_lab.figures.check import EXPECTED, compare, numbers

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
