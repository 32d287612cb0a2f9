"""Weights for vLLM: under their names in files, and as a file in shared memory that is written atomically.

transformers holds the experts of a layer as one tensor, files and vLLM one by one: transformers' own rules for saving
are applied to one layer at a time, so that no second copy of a model is held. vLLM silently ignores a missing or
misnamed tensor, which is why everything is compared here, in trainer and engine. A tied head is sent under both of its
names: on a CPU vLLM packs it separately from the embedding, and it would silently keep its old weights.
"""

import hashlib
import json
import os
import struct
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import groupby
from math import prod
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, PretrainedConfig

from pmdkit.errors import Diverged, EnvironmentLacks, UsageError
from pmdkit.llm.engines.base import EngineLost
from pmdkit.llm.weights import named_weights

Shapes = dict[str, tuple[int, ...]]
DTYPE_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16"}
SHARED_MEMORY = Path("/dev/shm")
PREFIX = "pmdkit-weights-"
NEW = 10.0  # seconds: a file that is younger may not be locked yet


class WeightNames:
    """The names and shapes of an architecture's weights.

    Args:
        config: of a causal language model.

    Attributes:
        architecture: the name of its class in transformers.
        model_shapes: shapes by name in the model; a tied head appears once.
        aliases: maps further names of tied weights to the one in `model_shapes`.
        file_shapes: shapes by name in files, including aliases.
    """

    def __init__(self, config: PretrainedConfig) -> None:
        with torch.device("meta"), torch.random.fork_rng(devices=[]):
            self.skeleton = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        self.architecture = type(self.skeleton).__name__
        whole = named_weights(self.skeleton)
        self.model_shapes: Shapes = {name: tuple(tensor.shape) for name, tensor in whole.items()}
        state = self.skeleton.state_dict(keep_vars=True)
        same = {id(tensor): name for name, tensor in state.items() if name in whole}
        self.aliases = {name: same[id(tensor)] for name, tensor in state.items() if name not in whole}
        self.file_shapes: Shapes = {name: tuple(tensor.shape) for name, tensor in self.to_file_names(whole.items())}

    def check(self, names: Iterable[str]) -> None:
        """Refuse names that do not match those of the model one to one; tied weights may have any of their names."""
        given = set(names)
        unknown = sorted(given - set(self.model_shapes) - set(self.aliases))
        other = {own for alias, own in self.aliases.items() if alias in given}
        missing = sorted(set(self.model_shapes) - given - other)
        if unknown or missing:
            raise UsageError(
                f"published weights lack {missing[:3]} and have unknown {unknown[:3]}; expected the names of a "
                f"{self.architecture}, {len(self.model_shapes)} of them"
            )

    def stream(
        self, weights: Mapping[str, torch.Tensor], dtype: torch.dtype | None = None
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """Names in files and tensors, one layer at a time; a tensor is accessed once, since access may gather it.

        Raises:
            UsageError: a name is missing or unknown (before the first tensor), or a shape is wrong.
            Diverged: a weight is not finite.
        """
        self.check(weights)
        for name, tensor in self.to_file_names(self.checked(weights)):
            yield name, tensor if dtype is None else tensor.to(dtype)

    def checked(self, weights: Mapping[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
        """Each weight once, checked, by its own name."""
        for name in weights:
            target = self.aliases.get(name, name)
            if target != name and target in weights:
                continue
            tensor = weights[name].detach()
            if tuple(tensor.shape) != self.model_shapes[target]:
                raise UsageError(f"{name} has shape {list(tensor.shape)}; expected {list(self.model_shapes[target])}")
            if not bool(torch.isfinite(torch.linalg.vector_norm(tensor.float(), torch.inf))):
                raise Diverged(f"{name} has entries that are not finite; the engine keeps its older weights: lower lr")
            yield target, tensor

    def to_file_names(self, weights: Iterable[tuple[str, torch.Tensor]]) -> Iterator[tuple[str, torch.Tensor]]:
        """The same weights under their names in files, by transformers' rules for saving."""
        from transformers.core_model_loading import revert_weight_conversion

        for _, some in groupby(weights, key=lambda pair: layer(pair[0])):
            together = dict(some)
            together |= {alias: together[own] for alias, own in self.aliases.items() if own in together}
            yield from revert_weight_conversion(self.skeleton, together).items()


def layer(name: str) -> str:
    """Everything up to the first number: `model.layers.3.mlp.experts.down_proj` belongs to `model.layers.3`."""
    parts = name.split(".")
    number = next((i for i, part in enumerate(parts) if part.isdigit()), None)
    return "" if number is None else ".".join(parts[: number + 1])


@dataclass(frozen=True)
class WeightFile:
    """A weight file as described to its reader, which checks the whole file before it loads anything.

    Attributes:
        path: of the file.
        digest: sha256 of the whole file, hexadecimal.
        size: bytes.
        descriptor: of the writer, whose lock on the file shows that it is alive.
    """

    path: str
    digest: str
    size: int
    descriptor: int | None = None

    def as_json(self) -> dict[str, str | int]:
        """What vLLM passes on as `update_info`."""
        return {"path": self.path, "digest": self.digest, "size": self.size}

    def remove(self) -> None:
        """Delete the file, and release its lock."""
        Path(self.path).unlink(missing_ok=True)
        if self.descriptor is not None:
            os.close(self.descriptor)


def folder_for(given: str | None) -> Path:
    """The folder for weight files: the given one, shared memory, or the system's folder for temporary files.

    Files that killed trainers left in the latter two are removed: each is a whole model, which nothing else would free.
    """
    if given is not None:
        folder = Path(given)
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise EnvironmentLacks(f"vllm.folder {given} is not a folder that can be written; make it, or take another")
        return folder
    shared = SHARED_MEMORY.is_dir() and os.access(SHARED_MEMORY, os.W_OK)
    folder = SHARED_MEMORY if shared else Path(tempfile.gettempdir())
    for path in (*folder.glob(f"{PREFIX}*"), *folder.glob(f".{PREFIX}*")):
        remove_abandoned(path)
    return folder


def remove_abandoned(path: Path) -> None:
    """Delete a weight file whose writer was killed, as shown by its free lock."""
    with suppress(OSError), open(path, "rb") as file:  # it vanishes meanwhile, is locked, or belongs to another user
        lock(file.fileno())
        if time.time() - os.fstat(file.fileno()).st_mtime > NEW:
            path.unlink()


def lock(descriptor: int) -> None:
    """Lock an open file until all its holders close it or exit. OSError if another process holds the lock."""
    import fcntl  # not on Windows, where there is no vLLM

    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)


def write_weights(
    path: Path, weights: Iterable[tuple[str, torch.Tensor]], shapes: Mapping[str, tuple[int, ...]], dtype: torch.dtype
) -> WeightFile:
    """Write weights as they arrive, one at a time, under a temporary name, and rename the file at the end.

    Nothing is synced to disk: the file is read once, immediately, on this machine or not at all. It is locked until
    `WeightFile.remove`, or until this process exits.

    Args:
        path: of the file.
        weights: names and tensors; if they raise, no file is left.
        shapes: of all weights, known beforehand.
        dtype: of all weights in the file.
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
    digest = hashlib.sha256(head)
    try:
        with open(hidden, "xb") as file:
            with suppress(OSError):  # a file system without locks, where abandoned files stay
                lock(file.fileno())
            file.write(head)
            for name, tensor in in_order(weights, shapes):
                assert tuple(tensor.shape) == shapes[name], f"{name} is {tensor.shape}; expected {shapes[name]}"
                data = tensor.detach().to("cpu", dtype).contiguous().view(-1).view(torch.uint8).numpy().data
                digest.update(data)
                file.write(data)
            file.flush()
            os.replace(hidden, path)
            held = os.dup(file.fileno())  # of the same open file: the lock is released with the last descriptor
    except OSError as problem:
        raise EnvironmentLacks(
            f"weights cannot be written to {path}: {problem}; make room ({ends / 2**30:.2f} GiB), or set vllm.folder"
        ) from problem
    finally:
        hidden.unlink(missing_ok=True)
    return WeightFile(str(path), digest.hexdigest(), len(head) + ends, held)


def in_order(weights: Iterable[tuple[str, torch.Tensor]], order: Iterable[str]) -> Iterable[tuple[str, torch.Tensor]]:
    """Weights in the order of the header; those that arrive earlier, of the same layer, wait."""
    waiting: dict[str, torch.Tensor] = {}
    source = iter(weights)
    for name in order:
        while name not in waiting:
            other, tensor = next(source)
            waiting[other] = tensor
        yield name, waiting.pop(name)


def read_weights(file: WeightFile, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, torch.Tensor]:
    """The tensors, mapped into memory, after the whole file was checked against its digest and the shapes.

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
    """Refuse weights of another model: vLLM would skip tensors that are missing, and truncate those too large."""
    for name in sorted(found.keys() | shapes.keys()):
        a, b = (list(x[name]) if name in x else "absent" for x in (found, shapes))
        if a != b:
            raise EngineLost(
                f"the weights are of another model than the engine's: {name} is {a}; expected {b}: "
                "serve the model that is trained"
            )
