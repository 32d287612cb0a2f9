"""Advantages divided by a std of 2e-4 push as hard as those divided by 0.4, and Adam and a clip hide the difference."""

from collections.abc import Iterator
from math import log

import torch
from torch import Tensor

from pmdkit_lab.ward.replica import Replica

ARMS, GROUP, PROMPTS, STEPS, EPS = 64, 8, 8, 60, 1e-4
REWARD = 0.996 + 2e-4 * torch.linspace(-1, 1, ARMS, dtype=torch.float64)  # what is left of a saturated reward
RUNS = {
    "divided by the std, SGD": (True, 1.0, False),
    "no std, SGD": (False, 1.0, False),
    "no std, Adam": (False, 1.0, True),
    "reward capped at 0.9, std, Adam": (True, 0.9, True),
}


def advantage(reward: Tensor, std: bool) -> Tensor:
    """[P, G] reward minus the mean, over the std plus the constant of the patient's code if `std`."""
    centred = reward - reward.mean(1, keepdim=True)
    return centred / (reward.std(1, keepdim=True) + EPS) if std else centred


def moved(std: bool, cap: float, adam: bool, seed: int = 0) -> Iterator[tuple[float, float]]:
    """Distance KL(pi || start) in nats, and the gradient's norm, at every step from a uniform policy."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.zeros(ARMS, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([logits], lr=0.05) if adam else torch.optim.SGD([logits], lr=5.0)
    for _ in range(STEPS + 1):
        logp = logits.log_softmax(0)
        drawn = torch.multinomial(logp.detach().exp(), PROMPTS * GROUP, replacement=True, generator=generator)
        push = advantage(REWARD.clamp(max=cap)[drawn].view(PROMPTS, GROUP), std)
        (slope,) = torch.autograd.grad(-(push.flatten() * logp[drawn]).mean(), logits)
        yield float((logp.exp() * (logp + log(ARMS))).sum().detach()), float(slope.norm())
        logits.grad = slope
        optimizer.step()


def run() -> Replica:
    """Four ways to step on a saturated reward: the first gradient, and how far the policy moves in 60 steps."""
    curves = {name: list(zip(*moved(*arm), strict=True)) for name, arm in RUNS.items()}
    return Replica(
        ["step", "norm of the first gradient", "KL from the start after 60 steps"],
        {name: [slope[0], kl[-1]] for name, (kl, slope) in curves.items()},
        {"KL(π‖start), nats": {name: kl for name, (kl, _) in curves.items()}},
    )
