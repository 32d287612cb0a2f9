"""Weights to servers through a file in shared memory, and how they are told: vLLM 0.32 and later, or 0.24.

What the servers do with it is file_transfer.py and serve_extension.py.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from pmdkit.llm.engines.protocol import EngineLost
from pmdkit.llm.engines.vllm.http import Server
from pmdkit.llm.engines.vllm.names import Names
from pmdkit.llm.engines.vllm.serve_together import each
from pmdkit.llm.engines.vllm.weight_file import WeightFile, write


class Told(Protocol):
    """How one server takes weights that lie in a file, and which it says it has."""

    def prepare(self, server: Server, seconds: float) -> None:
        """After the server has started."""

    def take(self, server: Server, file: WeightFile, tag: str, seconds: float) -> None:
        """Load them under this tag. The server is paused."""

    def held(self, server: Server, seconds: float) -> str:
        """The tag of the weights that it has."""


class Native:
    """Start, update, finish: vLLM's own weight transfer with our backend, which its plug-in brings along."""

    def prepare(self, server: Server, seconds: float) -> None:
        """Refused where the server knows no weight transfer."""
        server.call("POST", "/init_weight_transfer_engine", {"init_info": {}}, seconds=seconds)

    def take(self, server: Server, file: WeightFile, tag: str, seconds: float) -> None:
        """One round trip; the tag is vLLM's weight version."""
        server.call("POST", "/start_weight_update", seconds=seconds)
        server.call("POST", "/update_weights", {"update_info": file.told()}, seconds=seconds)
        server.call("POST", "/finish_weight_update", {"weight_version": tag}, seconds=seconds)

    def held(self, server: Server, seconds: float) -> str:
        """vLLM's weight version."""
        return str(server.call("GET", "/weight_info", seconds=seconds).get("weight_version"))


class Reload:
    """`reload_weights` in every worker, by an extension of ours that reads the file and remembers the tag."""

    def prepare(self, server: Server, seconds: float) -> None:
        """Refused where the server does not have the extension."""
        self.held(server, seconds)

    def take(self, server: Server, file: WeightFile, tag: str, seconds: float) -> None:
        """One call to all workers."""
        remote(server, "pmdkit_take", [file.path, file.digest, str(file.size), tag], seconds)

    def held(self, server: Server, seconds: float) -> str:
        """What all workers remember; several tags in a sentence where they differ."""
        return " and ".join(sorted(set(remote(server, "pmdkit_held", [], seconds))))


def remote(server: Server, method: str, arguments: Sequence[str], seconds: float) -> list[str]:
    """What a method of all workers of a server returns."""
    body = {"method": method, "args": list(arguments), "timeout": seconds}
    results = server.call("POST", "/collective_rpc", body, seconds=seconds).get("results")
    if not isinstance(results, list) or not results:
        raise EngineLost(f"the workers of {server.url} answer {method} with {results}")
    return [str(result) for result in results]


class FileTransfer:
    """Writes weights once, and tells all servers.

    Args:
        names: of the weights.
        dtype: that the servers compute in.
        folder: seen by trainer and servers.
        told: how servers take them.
        seconds: deadline of each call.
    """

    def __init__(self, names: Names, dtype: torch.dtype, folder: Path, told: Told, seconds: float) -> None:
        self.names, self.dtype, self.folder, self.told, self.seconds = names, dtype, folder, told, seconds

    def prepare(self, servers: Sequence[Server]) -> None:
        """Before the first weights, and again after servers were started anew."""
        each(servers, lambda server: self.told.prepare(server, self.seconds))

    def pack(self, weights: Mapping[str, Tensor]) -> WeightFile:
        """The file, whole; what is refused here has touched no server."""
        path = self.folder / f"pmdkit-weights-{os.getpid()}-{id(self)}.safetensors"
        return write(path, self.names.stream(weights, self.dtype), self.names.filed, self.dtype)

    def push(self, packed: WeightFile, servers: Sequence[Server], tag: str) -> None:
        """All servers load it."""
        each(servers, lambda server: self.told.take(server, packed, tag, self.seconds))

    def drop(self, packed: WeightFile) -> None:
        """Nobody needs the file any more."""
        Path(packed.path).unlink(missing_ok=True)

    def held(self, servers: Sequence[Server]) -> list[str]:
        """The tags that the servers say they have."""
        return each(servers, lambda server: self.told.held(server, self.seconds))

    def close(self, servers: Sequence[Server]) -> None:
        """Nothing is kept."""


def while_paused(servers: Sequence[Server], update: Callable[[], None], seconds: float) -> None:
    """Stop generation everywhere, update, forget what was computed with older weights, go on.

    What fails on the way leaves the servers paused: they take requests, and write nothing.
    """
    each(servers, lambda server: server.call("POST", "/pause?mode=abort", seconds=seconds))
    update()
    for server, answer in zip(
        servers, each(servers, lambda one: one.call("POST", "/reset_prefix_cache", seconds=seconds)), strict=True
    ):
        if answer.get("success") is False:  # 0.24 answers with nothing
            raise EngineLost(f"the server at {server.url} keeps keys and values of older weights")
    each(servers, lambda server: server.call("POST", "/resume", seconds=seconds))
