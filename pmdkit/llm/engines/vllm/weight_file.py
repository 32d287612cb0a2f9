"""The file by which weights travel: safetensors, in shared memory, whole or not at all. Not what vLLM does with it."""

import hashlib
import json
import os
import struct
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import prod
from pathlib import Path

import torch
from torch import Tensor

from pmdkit.errors import EnvironmentLacks
from pmdkit.llm.engines.protocol import EngineLost

KINDS = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
MEMORY = Path("/dev/shm")


@dataclass(frozen=True)
class WeightFile:
    """What the reader is told.

    Attributes:
        path: of the file.
        digest: sha256 of all of it, hexadecimal.
        size: bytes.
    """

    path: str
    digest: str
    size: int

    def told(self) -> dict[str, str | int]:
        """As JSON holds it."""
        return asdict(self)


def folder_for(given: str | None) -> Path:
    """Where files are written: the given folder, shared memory, or the system's folder for temporary files."""
    if given is not None:
        folder = Path(given)
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise EnvironmentLacks(f"vllm.folder {given} is no folder that can be written; make it, or take another")
        return folder
    return MEMORY if MEMORY.is_dir() and os.access(MEMORY, os.W_OK) else Path(tempfile.gettempdir())


def write(
    path: Path, weights: Iterable[tuple[str, Tensor]], shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype
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
        table[name] = {"dtype": KINDS[dtype], "shape": list(shape), "data_offsets": [ends, ends + size]}
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


def in_order(weights: Iterable[tuple[str, Tensor]], order: Iterable[str]) -> Iterable[tuple[str, Tensor]]:
    """In the order of the header; those that come earlier, of the same layer, wait."""
    waiting: dict[str, Tensor] = {}
    source = iter(weights)
    for name in order:
        while name not in waiting:
            other, tensor = next(source)
            waiting[other] = tensor
        yield name, waiting.pop(name)


def read(told: WeightFile, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Tensor]:
    """The tensors, mapped into memory, after the whole file was compared with what was told and what is expected.

    Raises:
        EngineLost: the file is missing, cut off or altered, or has other names or shapes.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        size = os.stat(told.path).st_size
        if size != told.size:
            raise EngineLost(f"weights in {told.path} have {size} bytes; expected {told.size}: the file is cut off")
        with open(told.path, "rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != told.digest:
            raise EngineLost(f"weights in {told.path} have digest {found[:12]}; expected {told.digest[:12]}: altered")
        tensors = load_file(told.path)
    except (OSError, SafetensorError) as problem:
        raise EngineLost(f"weights in {told.path} cannot be read: {problem}; publish again") from problem
    compare({name: tuple(tensor.shape) for name, tensor in tensors.items()}, shapes)
    return tensors


def compare(found: Mapping[str, tuple[int, ...]], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Refuse weights of another model: vLLM would leave out what it lacks, and cut down what is too large."""
    for name in sorted(found.keys() | shapes.keys()):
        a, b = (list(x[name]) if name in x else "absent" for x in (found, shapes))
        if a != b:
            raise EngineLost(
                f"the weights are of another model than the engine's: {name} is {a}; expected {b}: "
                "serve the model that is trained"
            )
