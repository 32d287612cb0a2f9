"""The look of figures: undone after a block, told apart without colour, and saved to the same bytes."""

import xml.etree.ElementTree as xml

import matplotlib
import pytest
from PIL import Image

from pmdkit.figures.style import RC
from pmdkit.objectives import OBJECTIVES
from pmdkit_lab import figures
from pmdkit_lab.figures.looks import LOOKS, look
from tests.nightly import mostly_nightly


def test_style_holds_for_a_block_and_then_is_undone() -> None:
    before = matplotlib.rcParams["lines.linewidth"]
    with figures.style():
        assert matplotlib.rcParams["lines.linewidth"] == RC["lines.linewidth"] != before
    assert matplotlib.rcParams["lines.linewidth"] == before


def test_every_objective_has_a_look_and_none_needs_its_colour() -> None:
    """Dash and marker alone tell all methods apart: a greyscale print loses nothing."""
    assert set(LOOKS) == set(OBJECTIVES)
    assert len({str(dash) for _, dash, _ in LOOKS.values()}) == len(LOOKS)
    assert len({marker for _, _, marker in LOOKS.values()}) == len(LOOKS)
    assert look("my.py:MyLoss")["color"] not in {colour for colour, _, _ in LOOKS.values()}


@pytest.mark.slow
@pytest.mark.parametrize("name", mostly_nightly(figures.FIGURES, *list(figures.FIGURES)[::8]))
def test_the_same_figure_gives_the_same_bytes(name, tmp_path) -> None:
    """Drawn and saved twice, as two runs of the command would: no date, no random ids, no state from the first."""
    first, second = (figures.draw(name).save(tmp_path / take / name) for take in ("a", "b"))
    assert [path.name for path in first] == [f"{name}.png", f"{name}.svg"]
    for one, other in zip(first, second, strict=True):
        assert one.read_bytes() == other.read_bytes()


def test_alt_text_travels_in_both_files(tmp_path) -> None:
    drawing = figures.draw("fig1-left")
    png, svg = drawing.save(tmp_path / "fig1.left")
    assert (png.name, svg.name) == ("fig1.left.png", "fig1.left.svg")
    with Image.open(png) as picture:
        assert picture.text["Description"] == drawing.alt
        assert picture.info["dpi"][0] >= 150 - 1
    described = xml.parse(svg).getroot().iter("{http://purl.org/dc/elements/1.1/}description")
    assert [element.text for element in described] == [drawing.alt]
