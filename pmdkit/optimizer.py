"""Optimizers of the tabular and the toy tier: torch's own, but without importing torch._dynamo.

Any torch optimizer imports torch._dynamo when it is constructed. That takes as long as importing torch, and only
matters to compiled code, which the small tiers never have.
"""

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import nn

Name = Literal["adam", "adamw", "sgd"]


def eager(kind: type[torch.optim.Optimizer]) -> type[torch.optim.Optimizer]:
    """The same optimizer, not compilable; returned unchanged if this torch wraps its methods in another way.

    torch wraps some methods so that a compiler leaves them alone. The wrapper asks torch._dynamo once for a function to
    call and caches it in an attribute; here that attribute is set to the function itself.
    """
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        inner = getattr(getattr(kind, name), "__wrapped__", None)
        if inner is not None and not hasattr(inner, "__dynamo_disable"):
            setattr(inner, "__dynamo_disable", inner)
    step = getattr(kind.step, "__wrapped__", None)
    return type(kind.__name__, (kind,), {"step": torch.no_grad()(step)}) if step is not None else kind


KINDS: dict[Name, Any] = {
    "adam": eager(torch.optim.Adam),
    "adamw": eager(torch.optim.AdamW),
    "sgd": eager(torch.optim.SGD),
}


def make_optimizer(
    parameters: Iterable[nn.Parameter], name: Name, lr: float, fused: bool = False
) -> torch.optim.Optimizer:
    """Make an optimizer; all other options have torch's defaults.

    `fused` means one kernel per weight instead of a dozen, for Adam and AdamW; the same step up to rounding. State
    saved without it is continued without it, so that an older run resumes bit for bit.
    """
    options = {"fused": True} if fused and name != "sgd" else {}
    made: torch.optim.Optimizer = KINDS[name](parameters, lr=lr, **options)
    return made
