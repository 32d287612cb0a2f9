"""`pmdkit figure`: files, sentences, JSON, exit codes."""

import json

import pytest

from pmdkit_lab.figures import FIGURES, TABLES
from pmdkit_lab.ledger import items


@pytest.mark.nightly  # every figure of the paper
def test_all_figures_are_drawn_and_explained(call, tmp_path, capfd) -> None:
    assert call("figure", "--json") == 0
    out, err = capfd.readouterr()
    drawn = json.loads(out)
    assert [entry["name"] for entry in drawn] == [*FIGURES, *TABLES]
    for entry in drawn:
        least = 1000 if entry["name"] in FIGURES else 100
        assert all((tmp_path / path).stat().st_size > least for path in entry["files"])
        assert entry["see"]
        assert entry["alt"]
    assert len(list((tmp_path / "figures-out").iterdir())) == 2 * len(FIGURES | TABLES)
    assert "drawing fig2 (3 of 14)" in err


def test_every_figure_and_table_of_the_paper_is_made() -> None:
    """By the labels of the ledger's list of items."""
    made = " ".join(entry.label for entry in (FIGURES | TABLES).values())
    assert [item["id"] for item in items() if item["kind"] in ("figure", "table") and item["id"] not in made] == []


@pytest.mark.parametrize("arguments", [("fig2", "nonsense"), ("fig2", "--out", "file")])
def test_mistakes_are_one_sentence_and_draw_nothing(call, arguments, tmp_path, capfd) -> None:
    (tmp_path / "file").write_text("mine")
    assert call("figure", *arguments) == 2
    out, err = capfd.readouterr()
    assert not out
    assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
