"""What is drawn over seeds is their mean with the interval of `pmdkit.stats`."""

import numpy as np
from matplotlib.figure import Figure

from pmdkit.stats import interval_text, mean_interval
from pmdkit_lab.figures.panels import as_array, band, interval_bar

SEEDS = np.random.default_rng(0).random((5, 7))


def test_a_band_is_the_interval_at_each_place():
    ax = Figure().subplots()
    ends = band(ax, np.arange(7.0), SEEDS, "label", color="C0")
    np.testing.assert_array_equal(ends.T, [as_array(mean_interval(column)) for column in SEEDS.T])
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), ends[0])


def test_seeds_and_their_interval_are_drawn_beside_each_other():
    ax = Figure().subplots()
    ends = as_array(mean_interval(SEEDS[:, 0]))
    interval_bar(ax, 3.0, SEEDS[:, 0], ends, aside=0.2, color="C0")
    np.testing.assert_array_equal(ax.lines[0].get_xydata(), np.stack([SEEDS[:, 0], np.full(5, 3.2)], 1))
    (segment,) = ax.collections[0].get_segments()
    np.testing.assert_allclose(segment, [[ends[1], 3.0], [ends[2], 3.0]])


def test_a_single_seed_has_no_interval():
    end = mean_interval(np.array([0.5]))
    assert np.isnan(as_array(end)[1:]).all()
    assert interval_text(end) == "0.50"
    assert interval_text(np.array([0.5, 0.25, 0.75]), ".1f") == "0.5 [0.2, 0.8]"
