"""Rows without a score: mass 0 takes them out, whatever they hold."""

from dataclasses import replace

import torch

from pmdkit.objectives.traits import traits
from pmdkit.objectives.vocabulary import Groups, Objective
from pmdkit.testing.objectives.cases import case, same, value_and_gradient


def check_absent(objective: Objective, seed: int = 0) -> str | None:
    """A response with mass 0, a NaN reward and NaN log-probabilities leaves its peers as if it had not been drawn."""
    it = case(seed)
    prompts, size = it.groups.reward.shape
    absent = torch.zeros(prompts, size, dtype=torch.bool)
    absent[:, 2] = True
    rows = absent.flatten()[:, None]
    masked = replace(
        it,
        groups=Groups(torch.where(absent, torch.nan, it.groups.reward), torch.where(absent, 0.0, it.groups.mass)),
        logp=torch.where(rows, torch.nan, it.logp),
        logp_old=torch.where(rows, torch.nan, it.logp_old),
        logp_ref=torch.where(rows, torch.nan, it.logp_ref),
    )
    value, gradient = value_and_gradient(objective, masked.batch(objective))
    value_without, gradient_without = value_and_gradient(objective, it.rows(~absent).batch(objective))
    same(value, value_without, "an absent response changes the loss; mass 0 must not enter a baseline")
    same(gradient[~rows[:, 0]], gradient_without, "an absent response changes the gradient of its peers")
    assert bool((gradient[rows[:, 0]] == 0).all()), "an absent response has a gradient"

    if traits(objective).needs_peers:
        absent = torch.zeros(prompts, size, dtype=torch.bool)
        absent[0, 1:] = True
        lonely = replace(it, groups=Groups(it.groups.reward, torch.where(absent, 0.0, it.groups.mass)))
        _, gradient = value_and_gradient(objective, lonely.batch(objective))
        assert bool((gradient[:size] == 0).all()), "a group with a single scored response has a gradient"
    return None
