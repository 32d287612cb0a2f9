"""The clipped gain stays finite where its formula, min(ratio A, clip(ratio) A), does not."""

import math

import pytest
import torch

from pmdkit.objectives.grpo import clipped_gain, log_bounds


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
