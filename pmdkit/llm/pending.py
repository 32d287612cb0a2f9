"""Rollouts that were ordered and not used yet: what a checkpoint holds of them."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pmdkit.llm.canary import MEASURED
from pmdkit.llm.engines.protocol import Responses
from pmdkit.llm.writer import Order, Writer
from pmdkit.team import Team

FLAGS = ("mask", "ended")


@dataclass(frozen=True)
class Ordered:
    """A rollout that a learner ordered: [P] prompts, responses to each, the seed of its step."""

    prompts: Tensor
    group: int
    seed: int
    order: Order


def written(ordered: Mapping[int, Order], writer: Writer) -> dict[str, dict[str, Tensor]]:
    """`pending`: the responses of every order that was not collected, by the seed of its step; waits for them.

    The weights that write them are gone when a later step is checkpointed, so they cannot be written again.
    """
    writer.drain()
    if not writer.ahead:
        return {}
    tensors = {}
    for seed, order in ordered.items():
        assert order.drawn is not None
        for name in ("tokens", "logp", "mask", "ended"):
            value = getattr(order.drawn, name).cpu()
            tensors[f"{seed}.{name}"] = value.to(torch.uint8) if name in FLAGS else value
        tensors[f"{seed}.version"] = torch.tensor([order.version])
        found = [order.found[key] for key in MEASURED if order.found]
        tensors[f"{seed}.found"] = torch.tensor(found, dtype=torch.float64)
    return {"pending": tensors}


def restored(tensors: Mapping[str, Tensor], team: Team) -> dict[int, Order]:
    """The orders that `written` kept, in every process of a team."""
    found: dict[int, dict[str, Tensor]] = {}
    for key, source in sorted(tensors.items()):
        seed, _, name = key.partition(".")
        target = torch.empty(source.shape, dtype=source.dtype)
        team.copy(source, target)
        found.setdefault(int(seed), {})[name] = target
    return {seed: order(parts) for seed, parts in found.items()}


def order(parts: dict[str, Tensor]) -> Order:
    """An order that is written."""
    version = int(parts["version"][0])
    drawn = Responses(parts["tokens"], parts["logp"], parts["mask"].bool(), parts["ended"].bool(), version)
    return Order(None, version, drawn=drawn, found=dict(zip(MEASURED, parts["found"].tolist(), strict=False)))
