"""The optimizers of all tiers: torch's own, in one table, or your class as my.py:MyOptimizer.

Any torch optimizer imports torch._dynamo when it is constructed. That takes as long as importing torch, and only
matters to compiled code, which no tier has: `eager` leaves the import out.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from pmdkit.errors import EnvironmentLacks, UsageError, unknown
from pmdkit.plugins import class_from_path, is_path

OPTIMIZERS = ("adam", "adamw", "sgd", "muon")
ENDS = ("embed", "wte", "wpe", "head")
"Parts of the names of embeddings and heads, matrices that Muon is not made for."


def eager(kind: type[torch.optim.Optimizer]) -> Any:
    """Make an optimizer not compilable; it is returned unchanged if this torch wraps its methods in another way.

    torch wraps some methods so that a compiler leaves them alone. The wrapper asks torch._dynamo once for a function to
    call and caches it in an attribute; here that attribute is set to the function itself.
    """
    for name in ("add_param_group", "zero_grad", "state_dict", "load_state_dict"):
        inner = getattr(getattr(kind, name), "__wrapped__", None)
        if inner is not None and not hasattr(inner, "__dynamo_disable"):
            setattr(inner, "__dynamo_disable", inner)
    step = getattr(kind.step, "__wrapped__", None)
    return type(kind.__name__, (kind,), {"step": torch.no_grad()(step)}) if step is not None else kind


ADAM, ADAMW, SGD = eager(torch.optim.Adam), eager(torch.optim.AdamW), eager(torch.optim.SGD)


def check_optimizer(name: str) -> None:
    """Refuse a name that is not in OPTIMIZERS, a file that lacks the class, and Muon if this torch has none."""
    if is_path(name):
        optimizer_class(name)
    elif name not in OPTIMIZERS:
        raise UsageError(unknown("schedule.optimizer", name, OPTIMIZERS) + ", or your own as my.py:MyOptimizer")
    elif name == "muon" and not hasattr(torch.optim, "Muon"):
        raise EnvironmentLacks(f"schedule.optimizer 'muon' needs torch 2.9 or later; this is {torch.__version__}")


def make_optimizer(
    model: nn.Module,
    name: str,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    weight_decay: float = 0.01,
    fused: bool = False,
) -> torch.optim.Optimizer:
    """Make the optimizer of the trained weights of a model; options that are not named here have torch's defaults.

    Args:
        model: its parameters with `requires_grad` are trained.
        name: of OPTIMIZERS, or my.py:MyOptimizer. Your class gets a list of (name, parameter) and `lr`, as any class of
            torch.optim does: it may put them into groups, each with its own options. It does not get the rest.
        lr: learning rate of all groups.
        betas: of Adam and AdamW.
        weight_decay: of AdamW and Muon; Adam and SGD have none.
        fused: one kernel per weight instead of a dozen, for Adam and AdamW; the same step up to rounding. State saved
            without it is continued without it, so that an older run resumes bit for bit.
    """
    check_optimizer(name)
    named = [(key, weight) for key, weight in model.named_parameters() if weight.requires_grad]
    trained = [weight for _, weight in named]
    kernel = {"fused": True} if fused else {}
    made: torch.optim.Optimizer
    if is_path(name):
        made = optimizer_class(name)(named, lr=lr)
    elif name == "sgd":
        made = SGD(trained, lr=lr)
    elif name == "muon":
        made = MuonAdamW(named, lr, betas, weight_decay, kernel)
    elif name == "adamw":
        made = ADAMW(trained, lr=lr, betas=betas, weight_decay=weight_decay, **kernel)
    else:
        made = ADAM(trained, lr=lr, betas=betas, **kernel)
    return made


def optimizer_class(path: str) -> Callable[..., torch.optim.Optimizer]:
    """The optimizer that my.py:MyOptimizer names."""
    kind: type = class_from_path(path)
    if not issubclass(kind, torch.optim.Optimizer):
        raise UsageError(f"{path} is a {kind.__mro__[-2].__name__}; expected a subclass of torch.optim.Optimizer")
    return kind


class MuonAdamW(torch.optim.Optimizer):
    r"""Muon for the matrices between embedding and head, AdamW for all other weights: two parameter groups.

    Muon replaces the momentum of a matrix by the nearest semi-orthogonal one, $U V^T$ of its singular value
    decomposition. The step is scaled by $0.2 \sqrt{\max(rows, columns)}$, the size of AdamW's, so that both take the
    same learning rate.

    Source: Jordan et al. 2024, Muon; the scale is that of Liu et al. 2025, arXiv:2502.16982. The code is torch's.
    Differs: experts that are fused in one tensor of three dimensions are left to AdamW.

    Args:
        named: names and trained weights. ENDS tells embeddings and heads.
        lr, weight_decay: of both groups.
        betas: of AdamW; Muon's momentum is torch's default, 0.95.
        kernel: further options of AdamW.
    """

    def __init__(
        self,
        named: list[tuple[str, nn.Parameter]],
        lr: float,
        betas: tuple[float, float],
        weight_decay: float,
        kernel: dict[str, Any],
    ) -> None:
        hidden = [key for key, weight in named if weight.ndim == 2 and not any(end in key for end in ENDS)]
        matrices = [weight for key, weight in named if key in hidden]
        rest = [weight for key, weight in named if key not in hidden]
        if not matrices:
            raise UsageError("schedule.optimizer is 'muon' and no hidden matrix is trained; use adamw, adam or sgd")
        muon = eager(torch.optim.Muon)
        self.parts = [muon(matrices, lr=lr, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")]
        if rest:
            self.parts.append(ADAMW(rest, lr=lr, betas=betas, weight_decay=weight_decay, **kernel))
        super().__init__([part.param_groups[0] for part in self.parts], {"lr": lr})

    def step(self, closure: Any = None) -> Any:
        """Step Muon and AdamW with the parameter groups and the state of this optimizer, which checkpoints restore."""
        for part, group in zip(self.parts, self.param_groups, strict=True):
            part.param_groups, part.state = [group], self.state
            part.step()
