"""The weights of a model by the names that its Hugging Face folder has: taken, put back, and checked to be finite."""

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pmdkit.errors import ResumeRefused
from pmdkit.llm.shards import own
from pmdkit.team import ALONE, Team


def named(model: PreTrainedModel) -> dict[str, Tensor]:
    """Name to tensor, detached; a tensor that two names share, as a tied head, stands once."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict(keep_vars=True).items():
        if id(tensor) not in seen:
            found[name] = tensor.detach()
            seen.add(id(tensor))
    return found


def load(model: PreTrainedModel, found: Mapping[str, Tensor], team: Team = ALONE) -> None:
    """Copy weights into a model of the same names and shapes, in place; of a team, the main process's."""
    fill(named(model), found, team)


def fill(wanted: Mapping[str, Tensor], found: Mapping[str, Tensor], team: Team = ALONE) -> None:
    """Copy tensors into others of the same names and shapes, in place; of a team, the main process's."""
    for name in sorted(found.keys() | wanted.keys()):
        a, b = (list(x[name].shape) if name in x else "absent" for x in (found, wanted))
        if a != b:
            raise ResumeRefused(
                f"the checkpoint is of another model: {name} is {a}; expected {b} by the configuration of this run: "
                "put its own checkpoints back, or start again with another --out"
            )
    with torch.no_grad():
        for name, tensor in wanted.items():
            team.copy(found[name], tensor)


def finite(model: PreTrainedModel) -> bool:
    """Whether every weight that this process has is a number. One pass: a norm is finite if all of its terms are."""
    here = [weight for weight in (own(weight.detach()) for weight in model.parameters()) if weight.numel()]
    norms = torch._foreach_norm(here, torch.inf)
    return not norms or bool(torch.isfinite(torch.stack([norm.float() for norm in norms])).all())
