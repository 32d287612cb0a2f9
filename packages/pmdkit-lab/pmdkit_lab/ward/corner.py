"""In a corner the gradients of the expected reward and of the reverse KL vanish, and that of cross-entropy does not."""

from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor
from torch.nn import functional as F

from pmdkit_lab.ward.replica import Replica

AT = (0, 25, 100, 500)  # steps at which the patient's log is quoted


def slopes(z: Tensor, ref: float = 0.0) -> dict[str, Tensor]:
    """The pull on the logit of the right decision, whose chance is sigmoid(z)."""
    z = z.detach().requires_grad_()
    p, start = torch.sigmoid(z), torch.sigmoid(torch.tensor(ref, dtype=z.dtype))
    values = {
        "expected reward": 2 * p - 1,
        "reverse KL": -(p * (p / start).log() + (1 - p) * ((1 - p) / (1 - start)).log()),
        "cross-entropy": F.logsigmoid(z),
    }
    return {name: torch.autograd.grad(value.sum(), z, retain_graph=True)[0] for name, value in values.items()}


def reward_loss(logp: Tensor, y: Tensor) -> Tensor:
    """Minus the exact expected reward of two decisions, +1 and -1: no draws."""
    return (1 - 2 * logp.exp().gather(1, y[:, None])).mean()


LOSSES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], bool]] = {
    "expected reward, Adam": (reward_loss, True),
    "cross-entropy, Adam": (F.nll_loss, True),
    "expected reward, SGD": (reward_loss, False),
}


def warm(seed: int) -> tuple[torch.nn.Sequential, Tensor, Tensor]:
    """A small classifier trained by cross-entropy, and its examples."""
    torch.manual_seed(seed)
    x = torch.randn(2000, 16)
    y = ((x[:, 0] * x[:, 1] > 0) ^ (x[:, 2] > 0.3)).long()
    net = torch.nn.Sequential(torch.nn.Linear(16, 128), torch.nn.ReLU(), torch.nn.Linear(128, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    for _ in range(1500):
        rows = torch.randint(0, 2000, (128,))
        optimizer.zero_grad()
        F.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
    return net, x, y


def refined(seed: int, lr: float = 0.01) -> list[list[float]]:
    """Accuracy at `AT` while a solved classifier is trained on, with a fresh optimizer and 16 examples a step."""
    solved, x, y = warm(seed)
    found: list[list[float]] = []
    for loss, adam in LOSSES.values():
        net = deepcopy(solved)
        optimizer = torch.optim.AdamW(net.parameters(), lr=lr) if adam else torch.optim.SGD(net.parameters(), lr=0.05)
        generator = torch.Generator().manual_seed(seed)
        found.append([])
        for step in range(max(AT) + 1):
            if step in AT:
                found[-1].append(float((net(x).argmax(1) == y).double().mean()))
            rows = torch.randint(0, 2000, (16,), generator=generator)
            optimizer.zero_grad()
            loss(net(x[rows]).log_softmax(1), y[rows]).backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
    return found


def steps_out(name: str, chance: float = 1e-3) -> int:
    """Number of gradient steps of size 1 on the logit that raise the right decision from `chance` to one half.

    `name` is one of `slopes`; with "reverse KL" the chance only approaches one half, and float64 rounds it there.
    """
    z, steps = torch.tensor(chance, dtype=torch.float64).logit(), 0
    while torch.sigmoid(z) < 0.5:
        z, steps = z + slopes(z)[name], steps + 1
    return steps


def run() -> Replica:
    """Three ways to go on from a solved classifier, the mean of three seeds; and the slopes by logit."""
    found = torch.tensor([refined(seed) for seed in range(3)]).mean(0).tolist()
    z = torch.linspace(-12, 4, 81, dtype=torch.float64)
    return Replica(
        ["trained on with", *(f"accuracy at step {step}" for step in AT), "steps out of the corner"],
        {name: [*right, steps_out(name.split(",")[0])] for name, right in zip(LOSSES, found, strict=True)},
        {"pull on the logit": {name: slope.abs().tolist() for name, slope in slopes(z, ref=6.0).items()}},
        across="logit of the right decision",
        at=z.tolist(),
        log=True,
    )
