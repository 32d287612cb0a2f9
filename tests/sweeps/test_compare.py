"""Comparisons: what makes an arm, what is paired, and the numbers of a table worked by hand."""

import pytest

from pmdkit.errors import UsageError
from pmdkit.sweeps.compare import compare, to_csv, to_latex


def run(seed, rate, name="pmd-mean", **config):
    """A finished run as `collect` gives it."""
    options = {"objective.name": name, "run.seed": seed, "run.threads": seed % 2} | config
    return {
        "name": f"{name} {seed}",
        "config": options,
        "summary": {"pass_rate_last": rate, "env": "copy", "low": None},
    }


RUNS = [
    *(run(seed, rate, tau=0.1) for seed, rate in enumerate((0.1, 0.5, 0.9))),
    *(run(seed, rate, "grpo", clip=0.2) for seed, rate in enumerate((0.2, 0.5, 1.0))),
]


def test_arms_by_hand():
    """Differences 0.1, 0, 0.1: mean 1/15, s = 1/sqrt(300), t_{0.975, 2} = 4.3026527297."""
    mean, grpo = compare(RUNS)
    assert mean.against_first is None
    assert mean.interval.mean == pytest.approx(0.5)
    versus = grpo.against_first
    half = 4.3026527297 / 30
    assert versus.difference.mean == pytest.approx(1 / 15)
    assert versus.difference.low == pytest.approx(1 / 15 - half)
    assert versus.difference.high == pytest.approx(1 / 15 + half)
    assert (versus.wins, versus.ties, versus.pairs) == (2, 1, 3)


def test_a_seed_that_one_arm_lacks_is_left_out_of_the_pairs():
    grpo = compare(RUNS[:-1])[1]
    assert grpo.interval.count == 2
    assert grpo.against_first.difference.count == 2
    alone = compare([*RUNS[:3], run(7, 0.3, "grpo")])[1]
    assert alone.against_first is None


def test_what_else_varies_is_averaged_for_each_seed():
    """Two seeds with two tasks each: the interval is that of two seed means, not of four values."""
    runs = [run(seed, rate + 0.1 * (task == "b"), name, task=task)
            for name, rates in (("pmd-mean", (0.2, 0.4)), ("grpo", (0.3, 0.7)))
            for seed, rate in enumerate(rates) for task in "ab"]  # fmt: skip
    arms = compare(runs, by="objective")
    assert [(arm.label, arm.runs) for arm in arms] == [("pmd-mean", 4), ("grpo", 4)]
    versus = arms[1].against_first
    assert versus.difference.mean == pytest.approx(0.2)
    assert (versus.difference.count, versus.wins) == (2, 2)
    assert versus.difference.high == pytest.approx(0.2 + 12.7062047362 * 0.1)
    assert [arm.label for arm in compare(runs)] == [
        "pmd-mean, task a",
        "pmd-mean, task b",
        "grpo, task a",
        "grpo, task b",
    ]


@pytest.mark.parametrize(
    ("arguments", "held"),
    [
        ({"metric": "pass_rate"}, "'pass_rate_last'"),
        ({"metric": "env"}, "'copy'"),
        ({"metric": "low"}, "None"),
        ({"by": "objektive.name"}, "'objective.name'"),
    ],
)
def test_unknown_names_are_answered_with_the_nearest(arguments, held):
    with pytest.raises(UsageError, match=held):
        compare(RUNS, **arguments)


def test_csv_and_latex_hold_the_numbers():
    arms = compare(RUNS)
    lines = to_csv(arms).splitlines()
    assert lines[0].startswith("arm,runs,mean,low,high,difference")
    assert lines[1].endswith(",,,,,,")
    assert float(lines[2].split('"')[-1].split(",")[5]) == arms[1].against_first.difference.mean
    latex = to_latex(arms, "pass_rate_last")
    assert r"pass\_rate\_last" in latex
    assert "0.06667 [-0.07676, 0.2101] & 2 of 3, 1 equal" in latex
    assert latex.count(r"\\") == 3
