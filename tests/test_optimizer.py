"""The optimizers of the table are torch's, to the bit; Muon takes the hidden matrices; other names are refused."""

import pytest
import torch
from torch import nn

from pmdkit import train
from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.optimizer import OPTIMIZERS, make_optimizer
from pmdkit.resolve import resolve

STOCK = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 4), nn.Linear(4, 3)).double()


def end(make, model):
    """Weights after ten steps, with a save and a load in the middle."""
    optimizer = make(model)
    for step in range(10):
        optimizer.zero_grad()
        model(torch.randn(4, 5, dtype=torch.float64)).square().sum().backward()
        optimizer.step()
        if step == 4:
            kept = optimizer.state_dict()
            optimizer = make(model)
            optimizer.load_state_dict(kept)
    return torch.cat([weight.detach().flatten() for weight in model.parameters()]), optimizer.state_dict()


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("name", sorted(STOCK))
def test_steps_and_states_are_those_of_torch(name, fused):
    stock = {"fused": True} if fused and name != "sgd" else {}
    ours = end(lambda model: make_optimizer(model, name, 0.01, fused=fused), network())
    theirs = end(lambda model: STOCK[name](model.parameters(), lr=0.01, **stock), network())
    assert torch.equal(ours[0], theirs[0])
    assert ours[1]["param_groups"] == theirs[1]["param_groups"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden, self.lm_head = network()

    def forward(self, x):
        return self.lm_head(self.hidden(x))


class Both:
    """torch's Muon for the hidden matrix of a Net beside its AdamW for the rest."""

    def __init__(self, net):
        first, *rest = net.parameters()
        muon = torch.optim.Muon([first], lr=0.01, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
        self.parts = [muon, torch.optim.AdamW(rest, lr=0.01)]

    def zero_grad(self):
        for part in self.parts:
            part.zero_grad()

    def step(self):
        for part in self.parts:
            part.step()

    def state_dict(self):
        return [part.state_dict() for part in self.parts]

    def load_state_dict(self, kept):
        for part, state in zip(self.parts, kept, strict=True):
            part.load_state_dict(state)


def test_muon_takes_the_hidden_matrices_and_adamw_the_rest():
    ours, theirs = (end(make, Net())[0] for make in (lambda net: make_optimizer(net, "muon", 0.01), Both))
    assert torch.equal(ours, theirs)


@pytest.mark.parametrize("tier", [("bandit", "needle"), ("toy", "copy"), ("llm", "starter")])
def test_every_tier_refuses_an_unknown_optimizer_with_near_names(tier):
    with pytest.raises(UsageError, match=r"'adamv'.*adamw"):
        resolve(*tier, {"schedule.optimizer": "adamv"})


def test_every_name_of_the_table_trains(monkeypatch, tmp_path):
    for name in OPTIMIZERS:
        run = train("pmd-mean", "toy", "copy", out=tmp_path / name, steps=1, prompts=4, optimizer=name)
        assert run.metrics[0]["grad_norm"] > 0
    monkeypatch.delattr(torch.optim, "Muon", raising=False)
    with pytest.raises(EnvironmentLacks, match=r"torch 2\.9"):
        resolve("toy", "copy", {"schedule.optimizer": "muon"})


def test_muon_is_refused_where_there_is_no_hidden_matrix():
    with pytest.raises(UsageError, match="no hidden matrix"):
        resolve("bandit", "needle", {"schedule.optimizer": "muon"})
    with pytest.raises(UsageError, match="no hidden matrix"):
        make_optimizer(nn.ModuleDict({"embed": nn.Embedding(3, 2)}), "muon", 0.01)
