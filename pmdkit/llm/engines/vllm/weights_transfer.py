"""Send weights to paused servers: through a file on the same machine, or by NCCL between accelerators.

NCCL uses vLLM's own sender here, its receivers in the servers, and HTTP for the handshakes. A rendezvous or a broadcast
whose other side is gone never returns by itself, which is why both run in threads with a deadline.
"""

import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pmdkit.errors import EnvironmentLacks
from pmdkit.llm.engines.base import EngineConfig, EngineLost
from pmdkit.llm.engines.vllm.http import Json, Server, call_each, with_deadline
from pmdkit.llm.engines.vllm.server_process import find_port
from pmdkit.llm.engines.vllm.weights_file import PREFIX, WeightFile, WeightNames, folder_for, in_order, write_weights

LEAVE_SECONDS = 10.0  # for each side to leave the group; a dead server never does


def make_transfer(config: EngineConfig, kind: str, names: WeightNames) -> "FileTransfer | NCCLTransfer":
    """The transfer to servers that have started, "file" or "nccl"."""
    dtype, seconds = getattr(torch, config.dtype), config.rollout.silence
    if kind == "nccl":
        return NCCLTransfer(names, dtype, config.device, start=config.vllm.start, seconds=seconds)
    return FileTransfer(names, dtype, folder_for(config.vllm.folder), seconds)


class FileTransfer:
    """Writes weights to a file once, which all servers load by vLLM's weight transfer: start, update, finish.

    Args:
        names: of the weights.
        dtype: that the servers compute in.
        folder: visible to trainer and servers.
        seconds: deadline of each call.
    """

    def __init__(self, names: WeightNames, dtype: torch.dtype, folder: Path, seconds: float) -> None:
        self.names, self.dtype, self.folder, self.seconds = names, dtype, folder, seconds

    def prepare(self, servers: Sequence[Server]) -> None:
        """Called before the first weights, and again after servers were restarted; needs their weight transfer."""
        body: Json = {"init_info": {}}
        call_each(servers, lambda one: one.call("POST", "/init_weight_transfer_engine", body, seconds=self.seconds))

    def pack(self, weights: Mapping[str, Tensor]) -> WeightFile:
        """Write the whole file; a refusal here has touched no server."""
        path = self.folder / f"{PREFIX}{os.getpid()}-{id(self)}.safetensors"
        return write_weights(path, self.names.stream(weights, self.dtype), self.names.file_shapes, self.dtype)

    def push_weights(self, packed: WeightFile, servers: Sequence[Server], tag: str) -> None:
        """Have all servers load the file; the tag is vLLM's weight version from then on."""

        def push(server: Server) -> None:
            server.call("POST", "/start_weight_update", seconds=self.seconds)
            server.call("POST", "/update_weights", {"update_info": packed.as_json()}, seconds=self.seconds)
            server.call("POST", "/finish_weight_update", {"weight_version": tag}, seconds=self.seconds)

        call_each(servers, push)

    def release(self, packed: WeightFile) -> None:
        """Delete the file."""
        packed.remove()

    def close(self, servers: Sequence[Server]) -> None:
        """Do nothing: no connection is kept."""


class BroadcastClient:
    """The four calls of a weight update, each to all servers at once, in place of vLLM's VLLMWeightSyncClient.

    Args:
        servers: in the order of their ranks.
        worlds: number of accelerators of each.
        seconds: deadline of each call.

    Attributes:
        tag: of the weights that are sent next.
    """

    def __init__(self, servers: Sequence[Server], worlds: Sequence[int], seconds: float) -> None:
        self.servers, self.seconds = list(servers), seconds
        self.before = {server.url: sum(worlds[:at]) for at, server in enumerate(servers)}
        self.tag = ""

    def init_weight_transfer_engine(self, init_info: Json) -> None:
        """Form one group: the ranks of a server's workers follow those of the servers before it."""
        self.post(
            "/init_weight_transfer_engine",
            lambda server: {
                "init_info": init_info | {"rank_offset": init_info["rank_offset"] + self.before[server.url]}
            },
        )

    def start_weight_update(self) -> None:
        """Announce an update."""
        self.post("/start_weight_update", lambda server: {})

    def update_weights(self, update_info: Any) -> None:
        """Have all servers receive the weights; returns when they have."""
        self.post("/update_weights", lambda server: {"update_info": update_info})

    def finish_weight_update(self, weight_version: str | None = None) -> None:
        """Finish the update, under the tag."""
        self.post("/finish_weight_update", lambda server: {"weight_version": weight_version or self.tag})

    def post(self, path: str, body: Any) -> None:
        """One call to each server."""
        call_each(self.servers, lambda server: server.call("POST", path, body(server), seconds=self.seconds))


class WeightStream:
    """vLLM's WeightSource over the weights of a publish; its metadata is known before any of them is accessed."""

    def __init__(self, names: WeightNames, dtype: torch.dtype) -> None:
        self.names, self.dtype = names, dtype
        self.weights: Mapping[str, Tensor] = {}

    def metadata(self) -> list[Any]:
        """Names in files, one dtype, and shapes, in the order of the tensors."""
        from vllm.distributed.weight_transfer.base import ParamMeta

        return [ParamMeta(name, self.dtype, shape) for name, shape in self.names.file_shapes.items()]

    def __iter__(self) -> Iterator[tuple[str, Tensor]]:
        """The tensors, one layer at a time, in the order of `metadata`."""
        for name, tensor in in_order(self.names.stream(self.weights, self.dtype), self.names.file_shapes):
            yield name, tensor.contiguous()


class NCCLTransfer:
    """Sends weights to the workers of all servers in one group, of which this process is rank 0.

    Args:
        names: of the weights.
        dtype: that the servers compute in.
        device: of the trainer's model here.
        start: seconds for the group to form.
        seconds: deadline of every other call, and of a broadcast.
    """

    def __init__(
        self, names: WeightNames, dtype: torch.dtype, device: torch.device, *, start: float, seconds: float
    ) -> None:
        self.stream = WeightStream(names, dtype)
        self.device, self.start, self.seconds = device, start, seconds
        self.client: BroadcastClient | None = None
        self.sender: Any = None

    def prepare(self, servers: Sequence[Server]) -> None:
        """Form a group with the workers of all servers; called again after any of them was restarted.

        Raises:
            EnvironmentLacks: there is no CUDA here, or no vLLM in the trainer's environment.
            EngineLost: the group does not form in time.
        """
        check_cuda(self.device)
        try:
            from vllm.distributed.weight_transfer import WeightTransferTrainerFactory
            from vllm.distributed.weight_transfer.nccl_engine import NCCLTrainerInitInfo
        except ImportError as problem:
            raise EnvironmentLacks(
                "weights go to servers by NCCL with vLLM's own sender, and the trainer's environment has no vllm: "
                "install it, or set vllm.transfer='file'"
            ) from problem
        self.close(servers)
        worlds = call_each(servers, lambda server: world_size(server, self.seconds))
        self.client = client = BroadcastClient(servers, worlds, self.start)
        address = local_address(servers)
        info = NCCLTrainerInitInfo(
            rank=0, master_address=address, master_port=find_port(address, 0), world_size=1 + sum(worlds)
        )
        what = f"the NCCL rendezvous with {len(servers)} servers at {address}, port {info.master_port} (vllm.start)"
        self.sender = with_deadline(
            self.start,
            what,
            self.on_device(lambda: WeightTransferTrainerFactory.trainer_init(info, client=client, source=self.stream)),
        )
        client.seconds = self.seconds

    def pack(self, weights: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Check only the names before servers are touched: tensors are gathered as they are sent."""
        self.stream.names.check(weights)
        return weights

    def push_weights(self, packed: Mapping[str, Tensor], servers: Sequence[Server], tag: str) -> None:
        """Broadcast all weights; the servers report the tag from then on."""
        if self.client is None or self.sender is None:
            raise EngineLost("the servers and the trainer have not met; restart the engine")
        self.stream.weights, self.client.tag = packed, tag
        try:
            with_deadline(
                self.seconds, "sending weights by NCCL (rollout.silence)", self.on_device(self.sender.send_weights)
            )
        except BaseException:
            self.sender = None  # its streams may hold half of a broadcast
            raise

    def release(self, packed: Mapping[str, Tensor]) -> None:
        """Drop the reference to the trainer's weights."""
        self.stream.weights = {}

    def close(self, servers: Sequence[Server]) -> None:
        """End the group with the servers' workers, if there is one. A server that is gone has left it already."""
        if self.client is None:
            return
        sender, self.sender, self.client = self.sender, None, None
        for server in servers:
            with suppress(EngineLost):
                server.call("POST", "/shutdown_weight_transfer_engine", seconds=LEAVE_SECONDS)
        if sender is not None:
            with suppress(EngineLost):
                with_deadline(LEAVE_SECONDS, "leaving the NCCL group", self.on_device(sender.shutdown))

    def on_device(self, call: Any) -> Any:
        """The call, which first selects the device of this process in its thread."""

        def run() -> Any:
            torch.cuda.set_device(self.device)
            return call()

        return run


def world_size(server: Server, seconds: float) -> int:
    """Accelerators of a server: tensor- times data-parallel."""
    size = server.call("GET", "/get_world_size", seconds=seconds).get("world_size")
    if not isinstance(size, int) or size < 1:
        raise EngineLost(f"the server at {server.url} says it has {size} workers")
    return size


def local_address(servers: Sequence[Server]) -> str:
    """The address of this machine on the route to the servers: not loopback if one of them is on another machine."""
    found = []
    for server in servers:
        try:
            with socket.create_connection((server.host, server.port), timeout=10) as probe:
                found.append(str(probe.getsockname()[0]))
        except OSError as problem:
            raise EngineLost(f"the server at {server.url} is lost: {problem}") from problem
    return next((address for address in found if not ip_address(address).is_loopback), found[0])


def check_cuda(device: torch.device) -> None:
    """Refuse NCCL where it cannot work."""
    if device.type != "cuda" or not torch.cuda.is_available() or not torch.distributed.is_nccl_available():
        raise EnvironmentLacks(
            f"vllm.transfer is nccl and the trainer's model is on {device.type}: NCCL needs CUDA in trainer and "
            "servers; set vllm.transfer='file', or 'auto'"
        )
