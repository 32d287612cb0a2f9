"""A figure for a phone: its panels in one column, its legend inside, and nothing said of a panel is lost."""

import numpy as np
import pytest
from generate import phone
from matplotlib.figure import Figure

from pmdkit.figures.style import style


@pytest.fixture(autouse=True)
def look():
    with style():
        yield


def boxes(figure):
    figure.draw_without_rendering()
    return np.array([ax.get_position().bounds for ax in figure.axes])


def test_panels_stand_one_below_another_with_the_labels_of_their_neighbours(tmp_path):
    figure = Figure(figsize=(9, 4))
    axes = figure.subplots(2, 2, sharex=True, sharey=True)
    for i, ax in enumerate(axes.flat):
        ax.plot([0, 1], [i, i], label="one quite long name of a line")
        ax.set(title=f"panel {i}", xlabel="steps", ylabel="pass rate")
        ax.label_outer()
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside right center")
    assert phone.both(figure, tmp_path / "name") == ["name.svg", "name-phone.svg"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["name-phone.svg", "name.svg"]
    left, bottom, width, height = boxes(figure).T
    assert figure.get_figwidth() == phone.WIDTH
    np.testing.assert_allclose(left, left[0], atol=1e-3)
    assert (bottom[:-1] > (bottom + height)[1:]).all()
    assert (width > 0.7).all()
    assert [(ax.get_title(), ax.get_xlabel(), ax.get_ylabel()) for ax in figure.axes] == [
        (f"panel {i}", "steps", "pass rate") for i in range(4)
    ]
    (legend,) = figure.legends
    assert legend.get_window_extent().x0 >= 0
    assert legend.get_window_extent().x1 <= figure.bbox.width


def test_a_twin_stays_on_its_panel_and_a_column_lends_its_title():
    figure = Figure(figsize=(8, 4))
    (first, _), (below, _) = figure.subplots(2, 2)
    first.set_title("a title")
    twin = first.twinx()
    assert phone.narrow(figure)
    boxes(figure)
    assert twin.get_position().bounds == pytest.approx(first.get_position().bounds)
    assert below.get_title() == "a title"


def test_a_strip_that_holds_a_legend_is_no_panel():
    figure = Figure(figsize=(8, 4))
    grid = figure.add_gridspec(2, 2)
    lines = [figure.add_subplot(grid[1, i]).plot([0, 1])[0] for i in range(2)]
    strip = figure.add_subplot(grid[0, :])
    strip.axis("off")
    strip.legend(lines, ["one", "two"])
    assert phone.narrow(figure)
    assert len(figure.axes) == 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["one", "two"]


def test_a_figure_that_fits_is_left_alone():
    figure = Figure(figsize=(phone.WIDTH, 3))
    figure.subplots()
    assert not phone.narrow(figure)
    assert 'srcset="b.svg"' in phone.tag('a "b"', "a.svg", "b.svg")
    assert "&quot;b&quot;" in phone.tag('a "b"', "a.svg")
    assert "srcset" not in phone.tag("a", "a.svg")
