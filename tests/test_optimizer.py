"""The small tiers' optimizers are torch's, to the bit."""

import pytest
import torch
from torch import nn

from pmdkit.optimizer import KINDS, make_optimizer

STOCK = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", sorted(KINDS))
def test_steps_and_states_are_those_of_torch(name, fused):
    """Weights after ten steps, with a save and a load in the middle, equal those of the stock class to the bit."""
    ends, states = [], []
    stock = {"fused": True} if fused and name != "sgd" else {}
    for make in (
        lambda given: make_optimizer(given, name, 0.01, fused),
        lambda given: STOCK[name](given, lr=0.01, **stock),
    ):
        torch.manual_seed(0)
        model = nn.Linear(5, 3)
        optimizer = make(model.parameters())
        for step in range(10):
            optimizer.zero_grad()
            model(torch.randn(4, 5)).square().sum().backward()
            optimizer.step()
            if step == 4:
                kept = optimizer.state_dict()
                optimizer = make(model.parameters())
                optimizer.load_state_dict(kept)
        ends.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        states.append(optimizer.state_dict()["param_groups"])
    assert torch.equal(*ends)
    assert states[0] == states[1]
