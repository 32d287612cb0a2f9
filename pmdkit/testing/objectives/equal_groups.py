"""Equal rewards teach nothing; whether they still hold the policy back is a trait."""

from dataclasses import replace

import torch

from pmdkit.objectives.traits import traits
from pmdkit.objectives.vocabulary import Groups, Objective
from pmdkit.testing.objectives.cases import case, same, value_and_gradient


def check_equal_groups(objective: Objective, seed: int = 0) -> str | None:
    """A group of equal rewards stays finite, and does what the trait `equal_groups` says."""
    it = case(seed)
    level = torch.tensor([0.1, 0.3, 0.7, 1.0], dtype=torch.float64)[:, None]  # 0.1: its mean and std round
    it = replace(it, groups=Groups(level.expand_as(it.groups.reward).clone(), it.groups.mass))
    at_old = it.on_policy(objective)
    moved = replace(at_old, logp=it.logp)
    _, gradient_at_old = value_and_gradient(objective, at_old)
    _, gradient = value_and_gradient(objective, moved)
    for tensor in (at_old.advantage, gradient_at_old, gradient):
        assert bool(torch.isfinite(tensor).all()), "a group of equal rewards gives NaN or infinity; 0 / 0 in a std?"
    kind = traits(objective).equal_groups
    if kind in ("silent", "anchor"):
        nothing = torch.zeros_like(gradient)
        same(gradient_at_old, nothing, "a group of equal rewards has a gradient at pi_old", atol=1e-12)
    if kind == "silent":
        same(gradient, torch.zeros_like(gradient), "a group of equal rewards is not silent", atol=1e-12)
    if kind == "anchor":
        along = (gradient * moved.log_ratio).sum(1).reshape(it.groups.reward.shape).sum(1)
        assert bool((along > 0).all()), "a group of equal rewards does not pull back to pi_old, as an anchor would"
    return None if kind else "finite; the trait equal_groups promises no more"
