"""Weights into an engine of this process by vLLM's weight transfer, 0.32 and later: start, update, finish."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pmdkit.llm.engines.vllm.names import Names
from pmdkit.llm.engines.vllm.plugin import FILE, HANDED, register
from pmdkit.llm.engines.vllm.weight_file import write

BACKENDS = {"file": FILE, "ipc": HANDED}


def configuration(kind: str) -> Any:
    """vLLM's WeightTransferConfig for "file" or "ipc". CUDA's own IPC does not open memory of the same process."""
    from vllm.config import WeightTransferConfig

    register()  # the entry point does it too, where pmdkit is installed with its metadata
    return WeightTransferConfig(backend=BACKENDS[kind])


class NativeTransfer:
    """Sends weights to an `LLM`.

    Args:
        llm: made with `configuration(kind)`.
        kind: "file" or "ipc".
        names: of the weights.
        dtype: that the engine computes in, and that is sent.
        folder: of files.
    """

    def __init__(self, llm: Any, kind: str, names: Names, dtype: torch.dtype, folder: Path) -> None:
        self.llm = llm
        self.kind = kind
        self.names = names
        self.dtype = dtype
        self.folder = folder
        llm.init_weight_transfer_engine({"init_info": {}})

    def send(self, weights: Mapping[str, Tensor], version: int) -> None:
        """All weights, under a version that vLLM writes on every row from then on."""
        some = self.names.stream(weights, self.dtype)
        if self.kind == "ipc":
            self.update({"weights": some}, version)
            return
        path = self.folder / f"pmdkit-weights-{os.getpid()}-{id(self)}-{version}.safetensors"
        try:
            self.update(write(path, some, self.names.filed, self.dtype).told(), version)
        finally:
            path.unlink(missing_ok=True)

    def update(self, told: dict[str, Any], version: int) -> None:
        """One round trip."""
        self.llm.start_weight_update()
        self.llm.update_weights({"update_info": told})
        self.llm.finish_weight_update(weight_version=str(version))
