"""The order of problems: a function of the step, every problem once per epoch, none twice in a step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit.llm.order import step_numbers

sizes, counts, seeds = st.integers(1, 40), st.integers(1, 60), st.integers(0, 2**31)


def row(size, count, seed, steps):
    numbers = 100 + 3 * np.arange(size)
    return numbers, np.concatenate([step_numbers(numbers, step, count, seed) for step in range(1, steps + 1)])


@settings(max_examples=300, deadline=None)
@given(sizes, counts, seeds)
def test_every_number_once_per_epoch(size, count, seed):
    numbers, asked = row(size, count, seed, steps=max(3, 5 * size // count))
    for begin in range(0, len(asked) - size + 1, size):
        assert sorted(asked[begin : begin + size]) == list(numbers)


@settings(max_examples=300, deadline=None)
@given(sizes, counts, seeds, st.integers(1, 500))
def test_no_number_twice_in_a_step(size, count, seed, step):
    asked = step_numbers(np.arange(size), step, count, seed)
    assert asked.shape == (count,)
    if count <= size:
        assert len(set(asked)) == count
    else:
        assert max(np.bincount(asked)) <= count // size + 2  # a part of an epoch at either end


@settings(max_examples=100, deadline=None)
@given(sizes, counts, seeds, st.integers(1, 100))
def test_a_step_alone_is_that_step_of_a_run(size, count, seed, step):
    """Resuming needs the step and nothing else."""
    numbers, asked = row(size, count, seed, steps=step)
    np.testing.assert_array_equal(step_numbers(numbers, step, count, seed), asked[(step - 1) * count :])


def test_seeds_and_epochs_differ():
    numbers = np.arange(1000)
    one, two = (step_numbers(numbers, 1, 1000, seed) for seed in (0, 1))
    assert np.any(one != two)
    assert np.any(one != step_numbers(numbers, 2, 1000, 0))


def test_first_places_are_fair():
    """In each of the first places of a straddled epoch every number is equally likely: chi-square within 5 sd."""
    size, count, draws = 10, 7, 4000
    for step in (1, 2, 5):
        places = np.stack([step_numbers(np.arange(size), step, count, seed) for seed in range(draws)])
        expected = draws / size
        for place in places.T:
            chi2 = ((np.bincount(place, minlength=size) - expected) ** 2 / expected).sum()
            assert chi2 < (size - 1) + 5 * np.sqrt(2 * (size - 1))


@pytest.mark.parametrize(
    ("numbers", "step", "count", "message"),
    [
        (np.arange(0), 1, 1, r"numbers has shape \[0\]"),
        (np.zeros((2, 2), int), 1, 1, r"numbers has shape \[2, 2\]"),
        (np.arange(3), 0, 1, "step is 0"),
        (np.arange(3), 1, 0, "count is 0"),
    ],
)
def test_bad_input_is_told(numbers, step, count, message):
    with pytest.raises(ValueError, match=message):
        step_numbers(numbers, step, count, 0)
