"""The module at whose call a forward pass begins, whatever is computed in it: where DDP and FSDP2 have their hooks."""

from collections.abc import Callable
from typing import Any

from torch import nn
from transformers import PreTrainedModel


class Root(nn.Module):
    """A model and the work done with it: packed scoring calls the base model and reads the head's weight on its own.

    Args:
        model: called within `forward` only, where its weights are whole.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, work: Callable[[PreTrainedModel], Any]) -> Any:
        """What `work` makes of the model."""
        return work(self.model)
