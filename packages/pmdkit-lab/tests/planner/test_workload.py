"""Lengths: moments against draws, measured tables, and a mean that is asked for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit.resolve import resolve
from pmdkit_lab.planner.workload import QUANTILES, draw, from_quantiles, lengths, serving


def test_moments_are_those_of_draws():
    """Mean, mean square and expected longest of 30, within four standard errors of 40,000 draws."""
    found = lengths("direct", 1000)
    drawn = found.quantile(np.random.Generator(np.random.Philox(1)).random(40_000))
    assert drawn.min() >= 1
    assert drawn.max() <= 1000
    longest = drawn[:39_990].reshape(-1, 30).max(1)
    for told, sample in ((found.mean, drawn), (found.square, drawn.astype(float) ** 2), (found.longest(30), longest)):
        assert told == pytest.approx(sample.mean(), abs=4 * sample.std() / len(sample) ** 0.5)


def test_the_longest_of_one_is_the_mean_and_of_many_the_width():
    found = lengths("thinking", 700)
    assert found.longest(1) == pytest.approx(found.mean)
    assert found.longest(1e9) == pytest.approx(700, abs=1)


def test_lengths_scale_with_the_width():
    small, large = lengths("direct", 500), lengths("direct", 8000)
    assert large.mean / 8000 == pytest.approx(small.mean / 500, rel=0.005)
    assert small.mean / 500 == pytest.approx(np.trapezoid(QUANTILES["direct"], dx=1 / 40), rel=0.005)


@settings(deadline=None, max_examples=30)
@given(st.sampled_from(sorted(QUANTILES)), st.integers(60, 3000), st.floats(0.02, 0.94))
def test_a_mean_that_is_asked_for_is_met(shape, width, share):
    found = lengths(shape, width, share * width)
    assert found.mean == pytest.approx(share * width, rel=0.01, abs=1)
    assert found.alive[0] == 1
    assert (np.diff(found.alive) <= 0).all()
    assert found.width == width


def test_what_is_longer_than_the_width_is_cut_off():
    found = from_quantiles(np.array([50.0, 150.0]), 100)
    assert found.alive[-1] == pytest.approx(0.51)  # half of them, and those of 99 to 100 tokens
    assert found.longest(100) == pytest.approx(100, abs=0.01)


def test_draws_have_the_shape_and_responses_to_a_prompt_are_alike():
    shape = lengths("thinking", 2000)
    found = draw(shape, 4000, 8, seed=1, step=0)
    assert found.shape == (4000, 8)
    assert found.mean() == pytest.approx(shape.mean, abs=5 * found.mean(1).std() / 4000**0.5)
    assert np.corrcoef(found[:, 0], found[:, 1])[0, 1] > 0.5
    apart = draw(shape, 4000, 8, seed=1, step=0, alike=0.0)
    assert abs(np.corrcoef(apart[:, 0], apart[:, 1])[0, 1]) < 4 / 4000**0.5
    assert (draw(shape, 5, 2, 1, 3) == draw(shape, 5, 2, 1, 3)).all()


@pytest.mark.parametrize(("processes", "tensor", "found"), [(8, 1, (1, 16)), (8, 3, (3, 12)), (2, 2, (2, 4))])
def test_an_address_has_a_whole_machine_where_the_trainer_has(processes, tensor, found):
    changes = {"rollout.engine": "vllm-server", "vllm.urls": ["http://a:1", "http://b:1"]}
    changes |= {"parallel.processes": processes, "vllm.tensor_parallel": tensor}
    assert serving(resolve("llm", "qwen2.5-7b", changes)[0]) == found
