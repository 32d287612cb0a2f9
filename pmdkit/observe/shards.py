"""Named tensors in safetensors files, one file or shards with an index, read a range of rows at a time.

A shard holds whole tensors, or some rows of a tensor. The index follows the Hugging Face layout, with `weight_map`
from a name to its file; a tensor that is split is also listed under `rows`, with the first row in each file.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pmdkit import foreign
from pmdkit.errors import UsageError
from pmdkit.observe import files

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}
HEADER = 2**27
"Limit for the header of a safetensors file, bytes; the library has one too, of 100 MB."
INDEX = 2**28
"Limit for an index, bytes; it has a line for each tensor of each process."
BLOCK = 2**22
"Bytes in memory at a time while a tensor is copied from file to file, or to another kind of memory."
ADVICE = "save it again, or take another"


@dataclass(frozen=True)
class Piece:
    """Rows of a tensor stored in one file.

    Attributes:
        path: of the file.
        offset: of their first byte in it.
        first, rows: the first row and how many; a tensor without axes is one row.
    """

    path: Path
    offset: int
    first: int
    rows: int


@dataclass(frozen=True)
class StoredTensor:
    """A tensor on disk: its pieces cover its rows once, in order."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return prod(self.shape[1:]) * self.dtype.itemsize

    def read(self, first: int = 0, rows: int | None = None) -> Tensor:
        """Read some of its rows, or all of it, into new memory."""
        rows = (self.shape[0] if self.shape else 1) - first if rows is None else rows
        found = torch.empty((rows, *self.shape[1:]) if self.shape else (), dtype=self.dtype)
        data = bytes_of(found)
        for piece in self.pieces:
            start, end = max(first, piece.first), min(first + rows, piece.first + piece.rows)
            if start < end and self.row_bytes:
                part = data[(start - first) * self.row_bytes : (end - first) * self.row_bytes]
                read_into(piece.path, piece.offset + (start - piece.first) * self.row_bytes, part)
        return found

    def copy_to(self, target: Tensor, first: int = 0) -> None:
        """Fill a tensor with the rows from `first` on, a few at a time."""
        if not self.shape:
            target.copy_(self.read())
            return
        step = max(1, BLOCK // max(1, self.row_bytes))
        for at in range(0, len(target), step):
            some = target[at : at + step]
            some.copy_(self.read(first + at, len(some)))

    def blocks(self) -> Iterator[memoryview]:
        """Its bytes from the first row to the last, block by block."""
        for piece in self.pieces:
            done, size = 0, piece.rows * self.row_bytes
            while done < size:
                block = memoryview(bytearray(min(BLOCK, size - done)))
                read_into(piece.path, piece.offset + done, block)
                yield block
                done += len(block)


def bytes_of(tensor: Tensor) -> memoryview:
    """The memory of a contiguous CPU tensor as bytes, without a copy."""
    return tensor.reshape(-1).view(torch.uint8).numpy().data


def read_into(path: Path, offset: int, data: memoryview) -> None:
    """Fill a buffer with the bytes of a file from an offset on."""
    with foreign.open_file(path, foreign.WEIGHTS, ADVICE) as file:
        file.seek(offset)
        while data:
            count = file.readinto(data)
            if not count:
                raise UsageError(f"{path} ends within a tensor; {ADVICE}")
            data = data[count:]


def read_header(path: Path, advice: str = ADVICE) -> dict[str, tuple[torch.dtype, tuple[int, ...], int]]:
    """Type, shape and offset of the tensors of a safetensors file, by name.

    Raises:
        UsageError: it is not a safetensors file, or its tensors are misplaced.
    """
    with foreign.open_file(path, foreign.WEIGHTS, advice) as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= HEADER:
            raise UsageError(f"{path} is not a safetensors file (a header of {length:,} bytes); {advice}")
        header = foreign.parse_json(file.read(length), f"the header of {path}", advice)
        size = file.seek(0, 2) - 8 - length
    found = {}
    with foreign.shaped(path, "a file of safetensors", advice):
        for name, entry in header.items():
            if name == "__metadata__":
                continue
            dtype, shape = DTYPES[entry["dtype"]], tuple(entry["shape"])
            begin, end = entry["data_offsets"]
            if not all(foreign.is_count(number) for number in (*shape, begin, end)) or end > size:
                raise TypeError("a shape or an offset is not a count")
            if end - begin != prod(shape) * dtype.itemsize:
                raise ValueError("the bytes of a tensor do not match its shape")
            found[name] = dtype, shape, 8 + length + begin
    return found


def index_name(part: str) -> str:
    """Name of the index of a part, which says in which shards its tensors are."""
    return f"{part}.safetensors.index.json"


def shard_name(part: str, number: int, count: int) -> str:
    """Name of the file of shard `number`, from 1, of `count`."""
    return f"{part}-{number:05d}-of-{count:05d}.safetensors"


def read_file(path: Path, advice: str = ADVICE) -> dict[str, StoredTensor]:
    """The tensors of one safetensors file."""
    return {
        name: StoredTensor(dtype, shape, (Piece(path, offset, 0, shape[0] if shape else 1),))
        for name, (dtype, shape, offset) in read_header(path, advice).items()
    }


def read_index(path: Path, advice: str = ADVICE) -> dict[str, StoredTensor]:
    """The tensors that an index names, in the files beside it.

    Raises:
        UsageError: it is not an index, a file lacks what the index says, or rows are missing or duplicated.
    """
    index = foreign.read_json(path, INDEX, advice)
    with foreign.shaped(path, "an index of safetensors files", advice):
        cut = {name: entry["files"] for name, entry in index.get("rows", {}).items()}
        shapes = {name: tuple(entry["shape"]) for name, entry in index.get("rows", {}).items()}
        places = {name: cut.get(name, {file: 0}) for name, file in index["weight_map"].items()}
        if strange := sorted(cut.keys() - places.keys()):
            raise ValueError(f"{strange[0]} has rows but no file")
        names = sorted({file for where in places.values() for file in where})
        if strange := [name for name in names if Path(name).name != name or not name.endswith(".safetensors")]:
            raise ValueError(f"{strange[0]!r} is not a file of the folder")
        headers = {name: read_header(path.with_name(name), advice) for name in names}
        found = {}
        for name, where in places.items():
            held = [(first, file, *headers[file][name]) for file, first in where.items()]
            dtype, shape = held[0][2], shapes.get(name, held[0][3])
            found[name] = assemble(name, dtype, shape, path.parent, sorted(held, key=lambda one: one[0]))
    return found


def assemble(
    name: str,
    dtype: torch.dtype,
    shape: tuple[int, ...],
    folder: Path,
    held: Iterable[tuple[int, str, torch.dtype, tuple[int, ...], int]],
) -> StoredTensor:
    """Assemble a tensor from its pieces: first row, file, type, shape and offset of each."""
    pieces, row = [], 0
    for first, file, kind, size, offset in held:
        if first != row or kind != dtype or size[1:] != shape[1:] or len(size) != len(shape):
            raise ValueError(f"{name} in {file} is not the part of it that the index says")
        rows = size[0] if size else 1
        pieces.append(Piece(folder / file, offset, first, rows))
        row += rows
    if row != (shape[0] if shape else 1):
        raise ValueError(f"{row} rows of {name} were found, but it has {shape[0]}")
    return StoredTensor(dtype, shape, tuple(pieces))


def read_folder(folder: Path, part: str, advice: str = ADVICE) -> dict[str, StoredTensor]:
    """The tensors of a part of a folder, in one file or in shards with an index."""
    index = folder / index_name(part)
    return read_index(index, advice) if index.exists() else read_file(folder / f"{part}.safetensors", advice)


def is_cut(folder: Path, part: str) -> bool:
    """Whether tensors of a part of a folder are split across files, so that only `read_folder` can read them."""
    index = folder / index_name(part)
    return index.exists() and "rows" in foreign.read_json(index, INDEX)


def encode_index(entries: Mapping[str, Mapping[str, tuple[int, tuple[int, ...]]]], sizes: Mapping[str, int]) -> bytes:
    """The index for the tensors in some files.

    Args:
        entries: for each file, the first row and the whole shape of each of its tensors.
        sizes: bytes of each file.
    """
    weight_map: dict[str, str] = {}
    rows: dict[str, Any] = {}
    for file, tensors in entries.items():
        for name, (first, shape) in tensors.items():
            weight_map.setdefault(name, file)
            rows.setdefault(name, {"shape": list(shape), "files": {}})["files"][file] = first
    cut = {name: entry for name, entry in sorted(rows.items()) if len(entry["files"]) > 1}
    index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": dict(sorted(weight_map.items()))}
    return files.encode(index | ({"rows": cut} if cut else {}))


def encode_header(tensors: Mapping[str, tuple[torch.dtype, tuple[int, ...]]]) -> bytes:
    """The header of a safetensors file; its tensors follow without gaps, in this order."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}  # transformers asks for it
    end = 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + prod(shape) * dtype.itemsize
        header[name] = {"dtype": NAMES[dtype], "shape": list(shape), "data_offsets": [begin, end]}
    data = json.dumps(header, separators=(",", ":")).encode()
    data += b" " * (-len(data) % 8)
    return len(data).to_bytes(8, "little") + data


def in_order(tensors: Mapping[str, Any]) -> list[str]:
    """Names in the order in which safetensors writes them: wide types first, so that each is aligned."""
    return sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> tuple[str, int]:
    """Write CPU tensors to a new safetensors file without a second copy; returns its SHA-256 and its size."""
    names = in_order(tensors)

    def parts() -> Iterator[bytes | memoryview]:
        yield encode_header({name: (tensors[name].dtype, tuple(tensors[name].shape)) for name in names})
        for name in names:
            if tensors[name].numel():
                yield bytes_of(tensors[name].contiguous())

    return files.write_parts(path, parts())


def write_stored(path: Path, tensors: Mapping[str, StoredTensor]) -> tuple[str, int]:
    """Copy stored tensors, block by block, into one new file that others may read; returns its SHA-256 and size."""
    names = in_order(tensors)

    def parts() -> Iterator[bytes | memoryview]:
        yield encode_header({name: (tensors[name].dtype, tensors[name].shape) for name in names})
        for name in names:
            yield from tensors[name].blocks()

    return files.write_parts(path, parts(), files.PUBLIC)
