"""Loss and derivative of one response of a group, from torch: the truth for the loss landscape's numbers."""

import torch

from pmdkit.objectives import OBJECTIVES, Batch, total, traits

# the objectives of the page, in their order
SHOWN = ["pmd-mean", "pmd-part", "rloo", "grpo", "dr-grpo", "dapo", "gspo", "cispo", "chi2-po", "rebel", "tb", "dro"]
TOLERANCE = 1e-9  # relative, in float64


def at(name, row, options, log_ratio):
    """Loss and derivative by log pi of the first of five responses, of which only it has moved; from torch."""
    kind, size, length = OBJECTIVES[name], row["group"], row["length"]
    objective = kind(norm="none", **options)
    advantage = torch.full((size,), -row["advantage"] / (size - 1), dtype=torch.float64)
    advantage[0] = row["advantage"]
    whole = torch.tensor(log_ratio, dtype=torch.float64, requires_grad=True)
    first = torch.zeros(size, 1, dtype=torch.float64)
    first[0] = 1
    old = torch.zeros(size, length, dtype=torch.float64)
    ones = torch.ones(size, dtype=torch.float64)
    batch = Batch(
        logp=old + first * whole / length, logp_old=old, mask=torch.ones_like(old, dtype=torch.bool),
        length=length * torch.ones(size, dtype=torch.long), advantage=advantage, weight=ones, tau=row["tau"] * ones,
        mass=ones / size, group=torch.zeros(size, dtype=torch.long), logp_ref=old - first * row["anchor"] / length,
    )  # fmt: skip
    if not traits(objective).whole_groups:
        batch = batch[:1]
    value = total(objective, batch)
    if traits(objective).whole_groups:  # less what the others have at pi_old
        value = value - (advantage[1:] ** 2).sum() / (2 * row["tau"])
    (slope,) = torch.autograd.grad(value, whole)
    times = length if name == "gspo" else 1
    return times * value.item(), times * slope.item()
