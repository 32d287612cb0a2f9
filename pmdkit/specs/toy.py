"""The spec of tier 2: the size of a small transformer, and its warm start."""

from typing import Literal

from pmdkit.specs.spec import Spec
from pmdkit.specs.table import Count, Positive, Share, Strict


class ModelTable(Strict):
    """[model] of a toy run: the size of the transformer."""

    dimension: Count = 64
    "Width of the residual stream."
    layers: Count = 2
    "Blocks."
    heads: Count = 2
    "Attention heads. The dimension must be a multiple of twice their number; vLLM needs 32 or more per head."
    path: str | None = None
    "Start from the model in this folder instead of from random weights."


class WarmStartTable(Strict):
    """[warm_start]: phase 0, supervised learning on right answers up to a chosen pass rate."""

    pass_rate: Share = 0.0
    "Target p0, measured on the evaluation problems; 0 for no warm start."
    max_steps: Count = 2000
    "Maximum number of supervised steps; not reaching the target by then is an error."
    look: Count = 20
    "Supervised steps between measurements; fewer stop closer to the target but measure more often."
    batch: Count = 128
    "Problems per supervised step."
    lr: Positive = 2e-3
    "Learning rate."


class ToySpec(Spec):
    """A run of a small transformer on a token task."""

    tier: Literal["toy"] = "toy"
    model: ModelTable = ModelTable()
    warm_start: WarmStartTable = WarmStartTable()
