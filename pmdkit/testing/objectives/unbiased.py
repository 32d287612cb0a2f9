"""Few draws, the right step on average: by enumeration, not by simulation."""

from dataclasses import replace

import torch
from torch import Tensor

from pmdkit.objectives.credit import credit, total
from pmdkit.objectives.traits import traits
from pmdkit.objectives.vocabulary import Groups, Objective
from pmdkit.testing.objectives.cases import bandit, same


def check_unbiased(objective: Objective, seed: int = 0) -> str | None:
    """Over all A^G draws of a bandit, weighted by their probability, the first step is that of the full support."""
    if not traits(objective).unbiased:
        return "does not apply: unbiased is not claimed"
    for size in (2, 3, 4):
        expected = exact_step(objective, seed)
        same(mean_step(objective, seed, size), expected, f"the average over all draws of {size} is not the exact step")
    return None


def exact_step(objective: Objective, seed: int, arms: int = 3) -> Tensor:
    """[A] gradient of the full-support loss at pi = pi_old, with respect to the logits of one context."""
    logits, reward = bandit(seed, 1, arms)
    logits.requires_grad_()
    logp = logits.log_softmax(1)
    mask = torch.ones(arms, 1, dtype=torch.bool)
    groups = Groups(reward, logp.detach().exp(), sampled=False)
    batch = credit(objective, groups, logp.reshape(-1, 1), mask, width=1)
    return torch.autograd.grad(total(objective, batch), logits)[0][0]


def mean_step(objective: Objective, seed: int, size: int, arms: int = 3) -> Tensor:
    """[A] the same gradient from draws, averaged over every group of `size` draws with its probability."""
    logits, reward = bandit(seed, 1, arms)
    logits.requires_grad_()
    logp = logits.log_softmax(1)[0]
    draws = torch.cartesian_prod(*[torch.arange(arms)] * size)
    chance = logp.detach()[draws].sum(1).exp()
    groups = Groups(reward[0][draws], torch.full(draws.shape, 1 / size, dtype=torch.float64))
    mask = torch.ones(draws.numel(), 1, dtype=torch.bool)
    batch = credit(objective, groups, logp[draws].reshape(-1, 1), mask, width=1)
    # a batch weighs its groups equally; here each counts by its probability
    weight = batch.weight * (chance * len(draws)).repeat_interleave(size)
    return torch.autograd.grad(total(objective, replace(batch, weight=weight)), logits)[0][0]
