"""The tables of a toy run."""

from pmdkit.tables.common import Strict


class ModelTable(Strict):
    """[model] of a toy run: the size of the transformer."""

    dimension: int = 64
    "Width of the residual stream."
    layers: int = 2
    "Blocks."
    heads: int = 2
    "Attention heads. The dimension is a multiple of twice their number; vLLM wants 32 or more for each."
    path: str | None = None
    "Start from the model in this folder instead of from random weights."


class WarmStartTable(Strict):
    """[warm_start] of a toy run: phase 0, supervised on right answers up to a chosen pass rate."""

    pass_rate: float = 0.0
    "Target p0, measured on the evaluation problems; 0 for no warm start."
    max_steps: int = 2000
    "Supervised steps at most; not reaching the target is an error."
    look: int = 20
    "Supervised steps between two measurements; fewer stop nearer to the target and measure more often."
    batch: int = 128
    "Problems per supervised step."
    lr: float = 2e-3
    "Learning rate."
