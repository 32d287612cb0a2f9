"""Weights through a file: safetensors in shared memory, whole or not at all; and how servers are asked to load it.

What vLLM's workers do with it is in weights_receiver.py.
"""

import hashlib
import json
import os
import struct
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path

import torch

from pmdkit.errors import EnvironmentLacks
from pmdkit.llm.engines.base import EngineLost
from pmdkit.llm.engines.vllm.http import Json, Server, call_each
from pmdkit.llm.engines.vllm.weight_names import WeightNames

DTYPE_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
SHARED_MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class WeightFile:
    """What the reader gets: it compares the whole file with it before it loads anything.

    Attributes:
        path: of the file.
        digest: sha256 of all of it, hexadecimal.
        size: bytes.
    """

    path: str
    digest: str
    size: int

    def as_json(self) -> dict[str, str | int]:
        """What vLLM passes on as `update_info`."""
        return asdict(self)


class FileTransfer:
    """Writes weights to a file once, which all servers load by vLLM's weight transfer: start, update, finish.

    Args:
        names: of the weights.
        dtype: that the servers compute in.
        folder: seen by trainer and servers.
        seconds: deadline of each call.
    """

    def __init__(self, names: WeightNames, dtype: torch.dtype, folder: Path, seconds: float) -> None:
        self.names, self.dtype, self.folder, self.seconds = names, dtype, folder, seconds

    def prepare(self, servers: Sequence[Server]) -> None:
        """Before the first weights, and again after servers were started anew; refused without weight transfer."""
        body: Json = {"init_info": {}}
        call_each(servers, lambda one: one.call("POST", "/init_weight_transfer_engine", body, seconds=self.seconds))

    def pack(self, weights: Mapping[str, torch.Tensor]) -> WeightFile:
        """The file, whole; what is refused here has touched no server."""
        path = self.folder / f"pmdkit-weights-{os.getpid()}-{id(self)}.safetensors"
        return write_weights(path, self.names.stream(weights, self.dtype), self.names.file_shapes, self.dtype)

    def push_weights(self, packed: WeightFile, servers: Sequence[Server], tag: str) -> None:
        """All servers load it; the tag is vLLM's weight version from then on."""

        def push(server: Server) -> None:
            server.call("POST", "/start_weight_update", seconds=self.seconds)
            server.call("POST", "/update_weights", {"update_info": packed.as_json()}, seconds=self.seconds)
            server.call("POST", "/finish_weight_update", {"weight_version": tag}, seconds=self.seconds)

        call_each(servers, push)

    def release(self, packed: WeightFile) -> None:
        """Nobody needs the file any more."""
        Path(packed.path).unlink(missing_ok=True)

    def close(self, servers: Sequence[Server]) -> None:
        """Nothing is kept."""


def folder_for(given: str | None) -> Path:
    """Where files are written: the given folder, shared memory, or the system's folder for temporary files."""
    if given is not None:
        folder = Path(given)
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise EnvironmentLacks(f"vllm.folder {given} is not a folder that can be written; make it, or take another")
        return folder
    return (
        SHARED_MEMORY if SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK) else Path(tempfile.gettempdir())
    )


def write_weights(
    path: Path, weights: Iterable[tuple[str, torch.Tensor]], shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype
) -> WeightFile:
    """Write weights as they come, one at a time, under another name, and give the file its name at the end.

    Nothing is forced to a disk: the file is read once, at once, on this machine or not at all.

    Args:
        path: of the file.
        weights: names and tensors; whatever they raise leaves no file.
        shapes: of all of them, known beforehand.
        dtype: of all of them in the file.
    """
    width = torch.empty((), dtype=dtype).element_size()
    table, ends = {}, 0
    for name, shape in shapes.items():
        size = prod(shape) * width
        table[name] = {"dtype": DTYPE_NAMES[dtype], "shape": list(shape), "data_offsets": [ends, ends + size]}
        ends += size
    text = json.dumps(table).encode()
    head = struct.pack("<Q", len(text) + -len(text) % 8) + text + b" " * (-len(text) % 8)
    hidden = path.with_name(f".{path.name}.{os.getpid()}")
    order = iter(shapes)
    digest = hashlib.sha256(head)
    try:
        with open(hidden, "xb") as file:
            file.write(head)
            for name, tensor in in_order(weights, order):
                assert tuple(tensor.shape) == shapes[name], f"{name} is {tensor.shape}; expected {shapes[name]}"
                data = tensor.detach().to("cpu", dtype).contiguous().view(-1).view(torch.uint8).numpy().data
                digest.update(data)
                file.write(data)
        os.replace(hidden, path)
    except OSError as problem:
        raise EnvironmentLacks(
            f"weights cannot be written to {path}: {problem}; make room ({ends / 2**30:.2f} GiB), or set vllm.folder"
        ) from problem
    finally:
        hidden.unlink(missing_ok=True)
    return WeightFile(str(path), digest.hexdigest(), len(head) + ends)


def in_order(weights: Iterable[tuple[str, torch.Tensor]], order: Iterable[str]) -> Iterable[tuple[str, torch.Tensor]]:
    """In the order of the header; those that come earlier, of the same layer, wait."""
    waiting: dict[str, torch.Tensor] = {}
    source = iter(weights)
    for name in order:
        while name not in waiting:
            other, tensor = next(source)
            waiting[other] = tensor
        yield name, waiting.pop(name)


def read_weights(file: WeightFile, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """The tensors, mapped into memory, once the whole file was compared with its digest and the shapes.

    Raises:
        EngineLost: the file is missing, cut off or altered, or has other names or shapes.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        size = os.stat(file.path).st_size
        if size != file.size:
            raise EngineLost(f"weights in {file.path} have {size} bytes; expected {file.size}: the file is cut off")
        with open(file.path, "rb") as opened:
            found = hashlib.file_digest(opened, "sha256").hexdigest()
        if found != file.digest:
            raise EngineLost(f"weights in {file.path} have digest {found[:12]}; expected {file.digest[:12]}: altered")
        tensors = load_file(file.path)
    except (OSError, SafetensorError) as problem:
        raise EngineLost(f"weights in {file.path} cannot be read: {problem}; publish again") from problem
    compare_shapes({name: tuple(tensor.shape) for name, tensor in tensors.items()}, shapes)
    return tensors


def compare_shapes(found: Mapping[str, tuple[int, ...]], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse weights of another model: vLLM would leave out what it lacks, and cut down what is too large."""
    for name in sorted(found.keys() | shapes.keys()):
        a, b = (list(x[name]) if name in x else "absent" for x in (found, shapes))
        if a != b:
            raise EngineLost(
                f"the weights are of another model than the engine's: {name} is {a}; expected {b}: "
                "serve the model that is trained"
            )
