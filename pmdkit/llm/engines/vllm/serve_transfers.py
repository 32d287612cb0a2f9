"""The ways by which weights reach servers: a file, or NCCL. Which one, is the fleet's to say."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from pmdkit.llm.engines.vllm.http import Server
from pmdkit.llm.engines.vllm.serve_file import FileTransfer, Native, Reload
from pmdkit.llm.engines.vllm.serve_fleet import Fleet
from pmdkit.llm.engines.vllm.weight_file import folder_for
from pmdkit.llm.engines.wanted import Wanted


class Transfer(Protocol):
    """Weights to paused servers."""

    def prepare(self, servers: Sequence[Server]) -> None:
        """Before the first weights, and again after servers were started anew."""

    def pack(self, weights: Mapping[str, Tensor]) -> Any:
        """What is sent; what is refused here has touched no server."""

    def push(self, packed: Any, servers: Sequence[Server], tag: str) -> None:
        """All servers load it, and hold the tag from then on."""

    def drop(self, packed: Any) -> None:
        """What was packed is not needed any more."""

    def held(self, servers: Sequence[Server]) -> list[str]:
        """The tags that the servers say they have."""

    def close(self, servers: Sequence[Server]) -> None:
        """Let go of what connects to the servers."""


def make_transfer(wanted: Wanted, fleet: Fleet) -> Transfer:
    """The transfer of a fleet that has started."""
    dtype, seconds = getattr(torch, wanted.dtype), wanted.rollout.silence
    if fleet.transfer == "nccl":
        from pmdkit.llm.engines.vllm.serve_nccl import NCCLTransfer

        return NCCLTransfer(fleet.names, dtype, wanted.model.device, start=wanted.vllm.start, seconds=seconds)
    told = Reload() if fleet.api == "reload" else Native()
    return FileTransfer(fleet.names, dtype, folder_for(wanted.vllm.folder), told, seconds)
