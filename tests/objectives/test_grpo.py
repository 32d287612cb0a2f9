"""The clipped gain is min(ratio A, clip(ratio) A), and stays finite where that formula does not."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pmdkit.objectives.grpo import clipped_gain, log_bounds


@pytest.mark.slow
@given(st.floats(-5, 5), st.floats(-4, 4), st.floats(0, 0.99), st.floats(0, 9))
@settings(deadline=None, derandomize=True, max_examples=300)
def test_it_is_the_formula(log_ratio, advantage, low, high):
    ratio = math.exp(log_ratio)
    expected = min(ratio * advantage, min(max(ratio, 1 - low), 1 + high) * advantage)
    numbers = torch.tensor([log_ratio, advantage], dtype=torch.float64)
    found = clipped_gain(numbers[0], numbers[1], low, high)
    assert found.item() == pytest.approx(expected, rel=1e-13, abs=1e-300)


@pytest.mark.parametrize("advantage", [0.0, 1.0])
def test_an_overflowing_ratio_is_cut_without_nan(advantage):
    """exp(800) is inf, and inf * 0 would be NaN, in the gradient as well."""
    log_ratio = torch.tensor([800.0], dtype=torch.float64, requires_grad=True)
    gain = clipped_gain(log_ratio, torch.tensor([advantage], dtype=torch.float64), 0.2, 0.2)
    gain.sum().backward()
    assert gain.item() == pytest.approx(1.2 * advantage, abs=1e-12)
    assert log_ratio.grad.item() == 0


def test_an_open_lower_side():
    assert log_bounds(1.0, 4.0) == (-math.inf, pytest.approx(math.log(5), abs=1e-15))
