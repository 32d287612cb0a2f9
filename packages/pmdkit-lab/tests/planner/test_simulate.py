"""Simulated steps: twins of the closed form, nothing lost or counted twice, and the lag that the loop promises."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit_lab.planner.hardware import Efficiency, cluster
from pmdkit_lab.planner.predict import Prediction, best, divisions
from pmdkit_lab.planner.simulate import (
    Costs,
    dealt,
    draw,
    durations,
    inside,
    most,
    serve,
    simulate,
    survival,
    timeline,
    together,
    trainer_seconds,
)
from pmdkit_lab.planner.timing import EngineSize, generation
from pmdkit_lab.planner.workload import ResponseLengths, lengths

from .conftest import PAPER, SEVEN
from .simulation import engine_seconds

SECONDS = st.lists(st.tuples(st.floats(0.1, 9), st.floats(0.1, 9)), min_size=8, max_size=30)


def apart(paper, lag, serve=8):
    """The paper's run with engines on accelerators of their own."""
    return replace(paper, work=replace(paper.work, lag=lag, recompute=False), serve=serve)


def test_equal_lengths_on_one_accelerator_are_the_closed_form():
    work = replace(PAPER, prompts=8, ministeps=4, fsdp2=False, longest=1170)
    alone = Prediction(SEVEN, work, ResponseLengths(np.ones(1000)), cluster("1xH200"))
    found = simulate(alone, steps=3)
    assert found.seconds == pytest.approx(alone.seconds, rel=1e-9)
    assert found.error == pytest.approx(0, abs=1e-9)
    assert found.tokens == pytest.approx(alone.tokens / alone.seconds)
    assert found.waiting == pytest.approx(0, abs=1e-9)
    assert found.rows == pytest.approx(128)


def test_independent_lengths_are_near_the_closed_form_and_alike_ones_are_slower(paper):
    """The closed form takes an average engine and independent responses: the slowest of 32 takes 6 % longer, and with
    whole groups of alike responses 21 %."""
    independent, alike = simulate(paper, alike=0.0), simulate(paper)
    closed = paper.generation.seconds
    assert durations(paper, 6, alike=0.0).engines.mean() < closed
    assert independent.generation / closed == pytest.approx(1.06, abs=0.03)
    assert independent.training_seconds == pytest.approx(paper.scoring + paper.update.seconds, rel=0.05)
    assert alike.generation / closed == pytest.approx(1.21, abs=0.05)


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


@settings(deadline=None, max_examples=30)
@given(SECONDS, st.integers(0, 3))
def test_a_larger_lag_is_never_slower(seconds, lag):
    generating, training = np.array(seconds).T
    ends = [timeline(generating, training, more, True).update[-1, 1] for more in (lag, lag + 1)]
    assert ends[1] <= ends[0] + 1e-9


def test_time_inside_a_window():
    spans = np.array([[0.0, 2.0], [3.0, 5.0], [6.0, 9.0]])
    assert inside(spans, (1.0, 7.0)).tolist() == [1, 2, 1]


@pytest.mark.slow
@pytest.mark.parametrize("lag", [0, 1, 3])
def test_shares_are_of_time_and_staleness_is_that_of_the_plan(paper, lag):
    told = apart(paper, lag)
    found = simulate(told, steps=6)
    assert 0 < found.generating <= 1
    assert 0 < found.training <= 1
    busy = (8 * found.generating + 24 * found.training) / 32
    assert busy + found.waiting == pytest.approx(1)
    assert found.staleness == told.staleness == 16 * (lag + 1) - 1


def test_on_the_same_accelerators_a_lag_gains_nothing(paper):
    lagged = replace(paper, work=replace(paper.work, lag=2))
    assert lagged.seconds == paper.seconds
    one, other = simulate(paper, 4, taken=durations(paper, 7)), simulate(lagged, 4, taken=durations(paper, 7))
    assert other.generation + other.training_seconds == pytest.approx(other.seconds)
    assert other.staleness == 47 > one.staleness
    assert one.generating + one.training + one.waiting == pytest.approx(1)


@pytest.mark.slow
def test_engines_and_trainer_apart_take_the_longer_of_the_two(paper):
    turns, lagged = apart(paper, 0), apart(paper, 1)
    assert turns.seconds == pytest.approx(turns.generation.seconds + turns.update.seconds)
    assert lagged.seconds == pytest.approx(max(lagged.generation.seconds, lagged.update.seconds))
    assert lagged.ms_per_token["overall"] * lagged.tokens / 1e3 == pytest.approx(lagged.seconds)
    assert simulate(lagged, 6).seconds < simulate(turns, 6).seconds


def test_the_best_division_is_the_balanced_one(paper):
    lagged = apart(paper, 1)
    found = best(lagged)
    assert found is not None
    assert found.seconds == min(d.seconds for d in divisions(lagged) if d.memory.fits)
    more = replace(found, serve=found.serve + 8)
    fewer = replace(found, serve=found.serve - 8) if found.serve > 8 else None
    assert more.update.seconds > found.seconds or more.generation.seconds > found.seconds
    assert fewer is None or fewer.generation.seconds > found.seconds


def test_alone_each_side_has_its_own_memory(paper):
    split = apart(paper, 1).memory.phases
    assert set(split["rollout"]) == {"engine weights", "KV cache"}
    assert "engine weights" not in split["update"]
    assert split["update"]["weights"] == pytest.approx(paper.memory.phases["update"]["weights"] * 32 / 24)
    sleeping = replace(paper, work=replace(paper.work, sleeps=True)).memory.phases
    assert "engine weights" not in sleeping["update"]
    assert sleeping["rollout"] == paper.memory.phases["rollout"]


def test_draws_have_the_shape_and_responses_to_a_prompt_are_alike():
    shape = lengths("thinking", 2000)
    found = draw(shape, 4000, 8, seed=1, step=0)
    assert found.shape == (4000, 8)
    assert found.mean() == pytest.approx(shape.mean, abs=5 * found.mean(1).std() / 4000**0.5)
    assert np.corrcoef(found[:, 0], found[:, 1])[0, 1] > 0.5
    apart = draw(shape, 4000, 8, seed=1, step=0, alike=0.0)
    assert abs(np.corrcoef(apart[:, 0], apart[:, 1])[0, 1]) < 4 / 4000**0.5
    assert (draw(shape, 5, 2, 1, 3) == draw(shape, 5, 2, 1, 3)).all()
    assert survival(np.array([[1, 3]]), 3).tolist() == [1, 0.5, 0.5]


def test_every_response_goes_to_one_engine():
    found = np.arange(1, 24).reshape(23, 1)
    parts = dealt(found, 5)
    assert sorted(parts[parts > 0]) == list(range(1, 24))
    assert (parts > 0).sum(1).tolist() == [5, 5, 5, 4, 4]


def test_the_fullest_trainer():
    assert most(np.array([5.0, 4, 3, 3, 3]), 2) == 10  # the rule is greedy: 9 could be had
    assert most(np.array([7.0, 1]), 8) == 7
    costs = np.random.Generator(np.random.Philox(2)).random(500)
    assert most(costs, 8) == pytest.approx(costs.sum() / 8, rel=0.02)


def test_more_trainers_than_responses_gain_nothing(paper):
    found = draw(paper.lengths, 512, 16, 0, 0)
    seconds = [trainer_seconds(replace(paper, cluster=cluster(f"{n}xH100")), found)[0] for n in (512, 1024)]
    assert seconds[1] == pytest.approx(seconds[0], rel=0.05)  # scoring all at once still gains, updates do not


# One simulated engine against an oracle that takes every decode step by itself.

ENGINE = EngineSize(SEVEN, cluster("1xH100"), Efficiency())
FLOORED = replace(ENGINE, efficiency=Efficiency(step_seconds=6e-3))  # the host takes longer than few rows do


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=25), st.integers(0, 40), st.integers(1, 1500), st.booleans())
def test_events_are_the_step_by_step_oracle(rows, prompt, room, floored):
    """Also where memory overflows, rows stop and go on: the same seconds, every token once."""
    engine = FLOORED if floored else ENGINE
    found = serve(Costs(engine, len(rows)), rows, prompt, room)
    assert found.seconds == pytest.approx(engine_seconds(engine, np.array(rows), prompt, room), rel=1e-9)
    assert found.tokens == sum(rows)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 80), min_size=2, max_size=24), st.integers(0, 30), st.booleans())
def test_many_engines_at_once_are_each_of_them_alone(rows, prompt, floored):
    engine = FLOORED if floored else ENGINE
    mine = np.array(rows + [0] * (len(rows) % 2)).reshape(2, -1)  # an engine with a row less
    costs = Costs(engine, mine.shape[1])
    found = together(costs, mine, prompt, 1e9)
    alone = [serve(costs, part[part > 0].tolist(), prompt, 1e9).seconds for part in mine]
    assert found == pytest.approx(alone, rel=1e-9)


def test_where_rows_must_wait_they_are_not_written_together():
    assert together(Costs(ENGINE, 4), np.array([[5, 5, 5, 5]]), 10, 50) is None
    assert serve(Costs(ENGINE, 4), [5, 5, 5, 5], 10, 50).steps > 5


def test_one_engine_with_equal_lengths_is_the_closed_form():
    fixed = ResponseLengths(np.ones(300))
    told = generation(ENGINE, fixed, 40, 170, 1e9)
    found = serve(Costs(ENGINE, 40), [300] * 40, 170, 1e9)
    assert found.seconds == pytest.approx(told.decode, rel=1e-9)
    assert found.steps == told.steps == 300


def test_slots_bound_the_rows_at_a_time():
    """Ten rows of 7 tokens in four slots: three turns of 7 steps, in the closed form too."""
    found = serve(Costs(ENGINE, 10), [7] * 10, 20, 1e9, slots=4)
    assert (found.steps, found.tokens, found.stops) == (21, 70, 0)
    wide = lengths("direct", 400)
    free = generation(ENGINE, wide, 100, 20, 1e9)
    few = generation(ENGINE, wide, 100, 20, 1e9, slots=10)
    assert (free.queue, few.queue) == (0, 0.9)
    drawn = wide.quantile(np.random.Generator(np.random.Philox(1)).random(100))
    truth = serve(Costs(ENGINE, 100), drawn.tolist(), 20, 1e9, slots=10).seconds
    assert few.decode == pytest.approx(truth, rel=0.15)
    assert few.decode > 2 * free.decode


def test_a_row_that_stops_is_read_again():
    tight = serve(Costs(ENGINE, 2), [50, 50], 10, 100)
    assert tight.stops > 0
    assert tight.seconds > serve(Costs(ENGINE, 2), [50, 50], 10, 1000).seconds
