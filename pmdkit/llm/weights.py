"""The weights of a model by the names that its Hugging Face folder has: taken, put back, and checked to be finite."""

from collections.abc import Mapping

import torch
from torch import Tensor
from transformers import PreTrainedModel

from pmdkit.errors import ResumeRefused


def named(model: PreTrainedModel) -> dict[str, Tensor]:
    """Name to tensor, detached; a tensor that two names share, as a tied head, stands once."""
    found: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen or tensor.numel() == 0:
            found[name] = tensor
            seen.add(tensor.data_ptr())
    return found


def load(model: PreTrainedModel, found: Mapping[str, Tensor]) -> None:
    """Copy weights into a model of the same names and shapes, in place."""
    wanted = named(model)
    for name in sorted(found.keys() | wanted.keys()):
        a, b = (list(x[name].shape) if name in x else "absent" for x in (found, wanted))
        if a != b:
            raise ResumeRefused(
                f"the checkpoint is of another model: {name} is {a}; expected {b} by the configuration of this run: "
                "put its own checkpoints back, or start again with another --out"
            )
    with torch.no_grad():
        for name, tensor in wanted.items():
            tensor.copy_(found[name])


def finite(model: PreTrainedModel) -> bool:
    """Whether every weight is a number. One pass: a norm is finite exactly if all of its terms are."""
    norms = torch._foreach_norm([weight.detach() for weight in model.parameters()], torch.inf)
    return bool(torch.isfinite(torch.stack([norm.float() for norm in norms])).all())
