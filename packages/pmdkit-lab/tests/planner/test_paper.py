"""The paper's table of efficiency, one run of two calibrated on; docs/use/plan.md has the same numbers."""

from dataclasses import replace

import pytest

from pmdkit_lab.planner.workload import lengths

ON, OFF = {"generation": 0.0512, "update": 0.0057}, {"generation": 0.0062, "update": 0.0064}  # ms per token
SPEEDUP = 0.0569 / 0.0126


def test_one_ministep_is_on_policy(paper):
    one = replace(paper, work=replace(paper.work, ministeps=1))
    assert one.speedup == 1
    assert one.staleness == 0


def test_the_speedup_is_near_the_papers(paper):
    assert paper.speedup == pytest.approx(SPEEDUP, rel=0.1)
    assert paper.staleness == 15


@pytest.mark.parametrize("column", ["generation", "update"])
def test_both_columns_are_near_the_papers(paper, column):
    """The run at staleness 15 was calibrated on, the one on-policy was not; updates are counted per response token."""
    assert paper.on_policy.ms_per_token[column] == pytest.approx(ON[column], rel=0.15)
    assert paper.ms_per_token[column] == pytest.approx(OFF[column], rel=0.15)


@pytest.mark.parametrize(
    ("shape", "mean", "speedup"),
    [
        ("direct", 1000, 5.0),
        ("direct", 2000, 5.0),
        ("direct", 3000, 4.3),
        ("direct", 4000, 3.5),
        ("thinking", None, 3.6),
    ],
)
def test_what_the_speedup_owes_to_the_lengths(paper, shape, mean, speedup):
    assert replace(paper, lengths=lengths(shape, 8192, mean)).speedup == pytest.approx(speedup, abs=0.1)
