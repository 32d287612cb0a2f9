"""Which runs a sweep has: every combination once, joined options together, names that never collide."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pmdkit.errors import UsageError
from pmdkit.sweeps.grid import Trial, expand, parse_over


def options(points):
    return [point.options for point in points]


def test_every_combination_times_the_seeds_in_order():
    over = parse_over(["objective=pmd-mean,grpo", "schedule.lr=1e-3,2"])
    points = expand("toy", "copy", over, range(2), {"schedule.steps": 3})
    assert options(points) == [
        {"schedule.steps": 3, "objective.name": name, "schedule.lr": lr, "run.seed": seed}
        for seed in (0, 1)
        for name in ("pmd-mean", "grpo")
        for lr in (0.001, 2)
    ]


def test_joined_options_move_together():
    over = parse_over(["prompts+ministeps=32+1,512+16", "tau=0.1"])
    points = expand("toy", "copy", over, [0], {})
    assert [(p.options["schedule.prompts"], p.options["schedule.ministeps"]) for p in points] == [(32, 1), (512, 16)]


@pytest.mark.parametrize(
    "pairs",
    [["tau"], ["tau="], ["=1"], ["tau=1", "objective.tau=2"], ["tau+tau=1+2"], ["seed=1,2"], ["prompts+group=32,64"]],
)
def test_a_grid_that_is_none_is_refused(pairs):
    with pytest.raises(UsageError):
        parse_over(pairs)


PLAIN = st.one_of(st.integers(), st.floats(allow_nan=False), st.text(max_size=150), st.booleans())


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["objective.tau", "env.arms", "schedule.lr"]), PLAIN))
def test_names_are_folders_and_tell_options_apart(first):
    """The name follows from the options alone, in any order, and a changed value changes it."""
    one = Trial("toy", "copy", {**first, "run.seed": 0})
    same = Trial("toy", "copy", dict(reversed(one.options.items())))
    other = Trial("toy", "copy", {**first, "run.seed": 1})
    assert one.name == same.name != other.name
    assert one.name != Trial("toy", "sort", one.options).name
    assert len(one.name.encode()) < 200
    assert "/" not in one.name
    assert not one.name.startswith(".")
