"""Scaling: what must hold of any design, and where it stops."""

import pytest

from pmdkit_lab.planner.scaling import doublings, scaling, stops


@pytest.fixture(scope="module")
def points(paper):
    return scaling(paper, [16, 32, 64, 128, 256])


def line(points, design):
    """The points of a design, by accelerators."""
    return {point.gpus: point for point in points if point.design == design}


@pytest.mark.nightly
def test_no_step_is_shorter_than_its_longest_response(points):
    assert all(point.found.seconds > point.found.alone for point in points)
    assert all(point.found.generation > point.found.alone for point in points)


@pytest.mark.slow
def test_more_accelerators_are_faster_and_each_of_them_does_less(points):
    for design in ("in turns", "lag 1", "lag 2"):
        found = line(points, design)
        tokens = [found[gpus].found.tokens for gpus in sorted(found)]
        assert tokens == sorted(tokens)
        assert tokens[-1] / tokens[0] < 16
    turns = line(points, "in turns")
    assert turns[256].found.waiting > turns[64].found.waiting > turns[16].found.waiting


@pytest.mark.slow
def test_a_lag_gains_and_a_second_one_hardly(points):
    """With pi_old from the engine in both, the first lag gains from 64 accelerators on, and nothing on fewer."""
    turns, one, two = (line(points, name) for name in ("unscored", "lag 1", "lag 2"))
    gains = {gpus: one[gpus].found.tokens / turns[gpus].found.tokens for gpus in turns}
    assert gains[32] == pytest.approx(1.0, abs=0.05)
    assert gains[64] > 1.1
    assert gains[256] > 1.2
    assert two[128].found.tokens == pytest.approx(one[128].found.tokens, rel=0.03)
    assert [p[128].found.staleness for p in (turns, one, two)] == [15, 31, 47]


@pytest.mark.slow
def test_a_larger_batch_scales_further_and_is_staler(points):
    grows, turns = line(points, "larger batch"), line(points, "in turns")
    assert sorted(grows) == [64, 128, 256]
    assert grows[256].found.tokens > 1.5 * turns[256].found.tokens
    assert [grows[gpus].found.staleness for gpus in sorted(grows)] == [31, 63, 127]


@pytest.mark.slow
def test_the_papers_run_stops_scaling_at_64(points):
    """Twice 64 give less than 1.5 times as much, in turns and with a lag; 32 to 64 still give more."""
    assert stops(points, "in turns") == 64
    assert stops(points, "lag 1") == 64
    assert line(points, "in turns")[256].bound == "longest"


def test_counts():
    assert doublings(32) == [8, 16, 32, 64, 128, 256, 512]
    assert doublings(1) == [1, 2, 4, 8, 16]
