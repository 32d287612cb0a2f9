"""One simulated engine against an oracle that takes every decode step by itself."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit.planner.hardware import Efficiency, cluster
from pmdkit.planner.simulate import Costs, serve, together
from pmdkit.planner.timing import EngineSize, generation
from pmdkit.planner.workload import ResponseLengths, lengths

from .conftest import SEVEN
from .simulation import engine_seconds

ENGINE = EngineSize(SEVEN, cluster("1xH100"), Efficiency())
FLOORED = replace(ENGINE, efficiency=Efficiency(step_seconds=6e-3))  # steps of few rows last as long as the floor


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


def test_equal_lengths_on_one_accelerator_are_the_closed_form():
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
    drawn = wide.draw(100, np.random.Generator(np.random.Philox(1)))
    truth = serve(Costs(ENGINE, 100), drawn.tolist(), 20, 1e9, slots=10).seconds
    assert few.decode == pytest.approx(truth, rel=0.15)
    assert few.decode > 2 * free.decode


def test_a_row_that_stops_is_read_again():
    tight = serve(Costs(ENGINE, 2), [50, 50], 10, 100)
    assert tight.stops > 0
    assert tight.seconds > serve(Costs(ENGINE, 2), [50, 50], 10, 1000).seconds
