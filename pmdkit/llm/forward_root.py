"""The module whose call starts a forward pass, where DDP, FSDP2 and the casting to bfloat16 have their hooks."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from pmdkit.llm import precision


class ForwardRoot(nn.Module):
    """The module whose call starts a forward pass: DDP and FSDP2 have their hooks there, and casting begins there.

    Packed scoring calls the base model and reads the head's weight separately, so the hooks of the model's own call
    would not run.

    Args:
        model: called only within `forward`, where its weights are whole.
        dtype: what the forward pass computes in.
        sharded: FSDP2 casts, by `fsdp.fsdp_policy`.

    Attributes:
        dtype: as given.
    """

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype = torch.float32, sharded: bool = False) -> None:
        super().__init__()
        self.model = model
        self.dtype = dtype
        self.casts = dtype != torch.float32 and not sharded
        if self.casts:
            precision.cast_blocks(model)

    def forward(self, work: Callable[[PreTrainedModel], Any]) -> Any:
        """The result of `work` on the model. A closure, since DDP would traverse every token of plain arguments."""
        if not self.casts:
            return work(self.model)
        # Blocks cast their own weights one at a time; embedding and last norm are cast here for the whole pass.
        with precision.cast_weights(precision.outside_blocks(self.model), self.dtype):
            return work(self.model)
