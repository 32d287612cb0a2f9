"""The lag that the loop promises, step by step, and accelerators divided between engines and trainer."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit_lab.planner.timeline import timeline

SECONDS = st.lists(st.tuples(st.floats(0.1, 9), st.floats(0.1, 9)), min_size=8, max_size=30)


def apart(paper, lag, serve=8):
    """The paper's run with engines on accelerators of their own."""
    return replace(paper, work=replace(paper.work, lag=lag, recompute=False), serve=serve)


@settings(deadline=None, max_examples=80)
@given(SECONDS, st.integers(0, 5), st.booleans())
def test_the_lag_is_exact_and_nobody_does_two_things_at_once(seconds, lag, own):
    generating, training = np.array(seconds).T
    found = timeline(generating, training, lag, own)
    steps = np.arange(1, len(seconds) + 1)
    assert (found.version == np.maximum(steps - 1 - lag, 0)).all()
    for s, version in enumerate(found.version):
        if version:  # its weights were there when the rollout began
            assert found.generation[s, 0] >= found.update[version - 1, 1]
        assert found.update[s, 0] >= found.generation[s, 1]
    for spans, taken in ((found.generation, generating), (found.update, training)):
        assert np.diff(spans).ravel() == pytest.approx(taken)
        assert (spans[1:, 0] >= spans[:-1, 1]).all()
    if not own:
        assert found.update[-1, 1] == pytest.approx(sum(generating) + sum(training))


@settings(deadline=None, max_examples=40)
@given(st.floats(0.1, 9), st.floats(0.1, 9), st.integers(1, 4))
def test_with_a_lag_a_step_lasts_as_long_as_the_slower_side(generating, training, lag):
    found = timeline(np.full(30, generating), np.full(30, training), lag, True)
    assert np.diff(found.update[5:, 1]) == pytest.approx(max(generating, training))
    turns = timeline(np.full(30, generating), np.full(30, training), 0, True)
    assert np.diff(turns.update[5:, 1]) == pytest.approx(generating + training)


@settings(deadline=None, max_examples=40)
@given(st.floats(1, 9), st.floats(1, 9), st.integers(1, 4))
def test_in_flight_a_slower_engine_writes_younger_tokens(generating, training, lag):
    """The plan's closed form is the mean over what happens step by step."""
    ages = timeline(np.full(60, generating), np.full(60, training), lag, True).age_in_flight
    assert (ages >= -1e-9).all()
    assert (ages <= lag + 1e-9).all()
    if abs(generating - training) > 1:  # the side that waits is the same from the start
        assert ages[50:] == pytest.approx(lag if training > generating else training / generating)


@pytest.mark.parametrize(("serve", "engines_wait"), [(8, False), (28, True)])
def test_the_plan_of_a_run_in_flight_has_the_pace_of_its_lag_and_at_most_its_staleness(serve, engines_wait, paper):
    exact = apart(paper, 2, serve)
    flying = replace(exact, work=replace(exact.work, in_flight=True))
    ratio = flying.update.seconds / flying.generation.seconds
    assert (flying.seconds, ratio > 1) == (exact.seconds, engines_wait)
    if engines_wait:
        assert flying.staleness == 47
    else:  # more tokens are written early, by rows that are all alive, than in the same time later
        assert ratio < flying.age < 1
        assert flying.staleness == pytest.approx((1 + flying.age) * 16 - 1)


def test_on_the_same_accelerators_a_lag_gains_nothing(paper):
    lagged = replace(paper, work=replace(paper.work, lag=2))
    assert lagged.seconds == paper.seconds
    assert lagged.staleness == 47 > paper.staleness


def test_engines_and_trainer_apart_take_the_longer_of_the_two(paper):
    turns, lagged = apart(paper, 0), apart(paper, 1)
    assert turns.seconds == pytest.approx(turns.generation.seconds + turns.update.seconds)
    assert lagged.seconds == pytest.approx(max(lagged.generation.seconds, lagged.update.seconds))
    assert lagged.ms_per_token["overall"] * lagged.tokens / 1e3 == pytest.approx(lagged.seconds)


def test_alone_each_side_has_its_own_memory(paper):
    split = apart(paper, 1).memory.phases
    assert set(split["rollout"]) == {"engine weights", "KV cache"}
    assert "engine weights" not in split["update"]
    assert split["update"]["weights"] == pytest.approx(paper.memory.phases["update"]["weights"] * 32 / 24)
    sleeping = replace(paper, work=replace(paper.work, sleeps=True)).memory.phases
    for phase in ("score", "update"):
        assert "engine weights" in paper.memory.phases[phase]
        assert "engine weights" not in sleeping[phase]
    assert sleeping["rollout"] == paper.memory.phases["rollout"]
