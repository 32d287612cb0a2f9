"""Which runs a sweep has: every combination once, joined options together, names that never collide."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pmdkit.errors import UsageError
from pmdkit.sweeps.grid import Trial, expand, parse_over, value
from pmdkit_lab.studies.experiments import EXPERIMENTS, METHODS, TAUS


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


def test_no_option_is_one_setting():
    assert options(expand("bandit", "needle", {}, range(3), {})) == [{"run.seed": seed} for seed in range(3)]


@pytest.mark.parametrize(
    ("text", "meant"),
    [("0.05", 0.05), ("16", 16), ("true", True), ("pmd-mean", "pmd-mean"), ('"16"', "16"), ("a=b", "a=b")],
)
def test_values_are_toml_or_plain_text(text, meant):
    assert value(text) == meant
    assert type(value(text)) is type(meant)


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        (["tau"], "expected key=v1,v2"),
        (["tau="], "expected key=v1,v2"),
        (["=1"], "expected key=v1,v2"),
        (["tau=1", "objective.tau=2"], "objective.tau twice"),
        (["tau+tau=1+2"], "objective.tau twice"),
        (["seed=1,2"], "run.seed"),
        (["prompts+ministeps=32,64"], "expected 2 values joined by"),
    ],
)
def test_a_grid_that_is_none_is_refused(pairs, told):
    with pytest.raises(UsageError, match=told):
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


def test_experiments_compare_at_the_same_updates_and_draws():
    """320 updates of 32 prompts with 16 draws, 16 on a rollout; 120 of 16, 4 on one, in parity. RLOO rolls out anew."""
    for name, experiment in EXPERIMENTS.items():
        updates, batch, stale = (120, 16, 4) if name == "sequence" else (320, 32, 16)
        for label, options in experiment.settings.items():
            steps, prompts, ministeps, group = (
                options[f"schedule.{key}"] for key in ("steps", "prompts", "ministeps", "group")
            )
            assert (name, label, steps * ministeps) == (name, label, updates)
            assert prompts * group == 16 * batch * ministeps, "draws of an update"
            assert ministeps == (1 if label == "rloo" else int(label.split()[1]) if name == "staleness" else stale)
            assert group == (int(label.split()[1]) if name == "group-size" else 16)
    assert set(EXPERIMENTS["training-curves"].settings) == {*METHODS, "rloo"}
    for method in ("pmd-mean", "pmd-part"):
        swept = {f"{method} tau={tau}": tau for tau in TAUS}
        assert {label: EXPERIMENTS["tau"].settings[label]["objective.tau"] for label in swept} == swept
