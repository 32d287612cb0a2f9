"""What the tests share: configurations composed from verl's own tree, and rows in verl's layout."""

import torch
from verl.utils.config import omega_conf_to_dataclass

from pmdkit_adapters.verl.check import composed

LOSS = "actor_rollout_ref.actor.policy_loss."
BASE = [
    "actor_rollout_ref.actor.use_dynamic_bsz=true",
    "actor_rollout_ref.rollout.name=vllm",
    "actor_rollout_ref.rollout.n=4",
]


def config(*overrides):
    return composed([*BASE, *overrides])


def actor(*overrides):
    """verl's ActorConfig, made as verl makes it."""
    return omega_conf_to_dataclass(config(*overrides).actor_rollout_ref.actor)


def rows(prompts=3, size=4, width=7, seed=0):
    """Old and new log-probabilities, mask [N, T] and rewards [P, G]; the last row of a group has one token."""
    draw = torch.Generator().manual_seed(seed)
    count = prompts * size
    lengths = torch.randint(2, width + 1, (count,), generator=draw)
    lengths[size - 1 :: size] = 1
    lengths[0] = width
    mask = torch.arange(width) < lengths[:, None]
    old = -torch.rand(count, width, generator=draw, dtype=torch.float64)
    new = old + 0.3 * torch.randn(count, width, generator=draw, dtype=torch.float64)
    reward = torch.randint(0, 2, (prompts, size), generator=draw).double() * 2 - 1
    reward[0] = torch.tensor([1.0] + [-1.0] * (size - 1))
    return old, new, mask, reward
