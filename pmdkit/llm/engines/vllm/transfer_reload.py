"""Weights into an engine of this process by `reload_weights` of vLLM 0.24, which knows no versions."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from pmdkit.llm.engines.vllm.names import Names


class ReloadTransfer:
    """Hands weights to an `LLM`, one layer at a time.

    Args:
        llm: in this process.
        names: of the weights.
        dtype: that the engine computes in, and that is sent.
    """

    def __init__(self, llm: Any, names: Names, dtype: torch.dtype) -> None:
        self.llm = llm
        self.names = names
        self.dtype = dtype

    def send(self, weights: Mapping[str, Tensor], version: int) -> None:
        """All weights. That vLLM drops missing ones in silence is why `names` counts them."""
        some = self.names.stream(weights, self.dtype)
        self.llm.collective_rpc("reload_weights", kwargs={"weights_iterator": some, "is_checkpoint_format": True})
