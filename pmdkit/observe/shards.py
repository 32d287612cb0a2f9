"""Named tensors in safetensors files, one file or shards with an index, of which any rows can be read.

A shard holds whole tensors, or some rows of a tensor. The index follows the Hugging Face layout, with `weight_map`
from a name to its file; a tensor that is split is also listed under `rows`, with the first row in each file.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from pmdkit import foreign
from pmdkit.observe import files

INDEX = 2**28
"Limit for an index, bytes; it has a line for each tensor of each process."
ADVICE = "save it again, or take another"


@dataclass(frozen=True)
class StoredTensor:
    """A tensor on disk: its shape, and the first row of each piece with its slice of an open safetensors file. Pieces
    cover the rows once, in order; a tensor without axes is one row."""

    shape: tuple[int, ...]
    pieces: tuple[tuple[int, Any], ...]

    def read(self, first: int = 0, rows: int | None = None) -> Tensor:
        """Read some of its rows, or all of it, into new memory."""
        if not self.shape:
            return self.pieces[0][1][...].clone()
        end = self.shape[0] if rows is None else first + rows
        found = []
        for start, piece in self.pieces:
            count = piece.get_shape()[0]
            if (first < start + count and start < end) or not self.shape[0]:
                found.append(piece[max(first - start, 0) : min(end - start, count)])
        # a slice of an open file is a view of the mapped file, which must not outlive a change of that file
        return torch.cat(found)


def index_name(part: str) -> str:
    """Name of the index of a part, which says in which shards its tensors are."""
    return f"{part}.safetensors.index.json"


def shard_name(part: str, number: int, count: int) -> str:
    """Name of the file of shard `number`, from 1, of `count`."""
    return f"{part}-{number:05d}-of-{count:05d}.safetensors"


def open_folder(folder: Path, part: str, advice: str = ADVICE) -> tuple[set[str], dict[str, StoredTensor]]:
    """The files of a part of a folder, and its tensors, which are left on disk.

    UsageError: a file is not what it should be, lacks what the index says, or rows are missing or duplicated.
    """
    path = folder / index_name(part)
    if not path.exists():
        name = f"{part}.safetensors"
        file = open_file(folder / name, advice)
        keys = list(file.keys())
        return {name}, {key: StoredTensor(tuple((at := file.get_slice(key)).get_shape()), ((0, at),)) for key in keys}
    index = foreign.read_json(path, INDEX, advice)
    with foreign.shaped(path, "an index of safetensors files", advice), library_errors():
        split, weight_map = index.get("rows", {}), index["weight_map"]
        if strange := sorted(split.keys() - weight_map.keys()):
            raise ValueError(f"{strange[0]} has rows but no file")
        places = {key: split[key]["files"] if key in split else {name: 0} for key, name in weight_map.items()}
        names = {name for where in places.values() for name in where}
        if strange := [name for name in sorted(names) if Path(name).name != name or not name.endswith(".safetensors")]:
            raise ValueError(f"{strange[0]!r} is not a file of the folder")
        opened = {name: open_file(folder / name, advice) for name in sorted(names)}
        found = {}
        for key, where in places.items():
            pieces = sorted((first, name, opened[name].get_slice(key)) for name, first in where.items())
            shape = tuple(split[key]["shape"] if key in split else pieces[0][2].get_shape())
            row, dtype = 0, pieces[0][2].get_dtype()
            for first, name, piece in pieces:
                size = tuple(piece.get_shape())
                if first != row or piece.get_dtype() != dtype or size[1:] != shape[1:] or len(size) != len(shape):
                    raise ValueError(f"{key} in {name} is not the part of it that the index says")
                row += size[0] if size else 1
            if row != (shape[0] if shape else 1):
                raise ValueError(f"{row} rows of {key} were found, but it has {shape[0]}")
            found[key] = StoredTensor(shape, tuple((first, piece) for first, _, piece in pieces))
    return names, found


def open_file(path: Path, advice: str) -> Any:
    """Open a safetensors file; the library checks its header."""
    shaped = foreign.shaped(path, "a file of safetensors", advice)
    with foreign.open_file(path, foreign.WEIGHTS, advice), shaped, library_errors():
        return safe_open(path, "pt")


@contextmanager
def library_errors() -> Iterator[None]:
    """Errors of safetensors as those of any other parser."""
    try:
        yield
    except SafetensorError as problem:
        raise ValueError(str(problem)) from problem


def is_cut(folder: Path, part: str) -> bool:
    """Whether tensors of a part of a folder are split across files, so that transformers cannot read them."""
    index = folder / index_name(part)
    return index.exists() and "rows" in foreign.read_json(index, INDEX)


def encode_index(entries: Mapping[str, Mapping[str, tuple[int, tuple[int, ...]]]], sizes: Mapping[str, int]) -> bytes:
    """The index for some files: `entries` has the first row and the whole shape of each tensor, `sizes` the bytes."""
    weight_map: dict[str, str] = {}
    rows: dict[str, Any] = {}
    for file, tensors in entries.items():
        for name, (first, shape) in tensors.items():
            weight_map.setdefault(name, file)
            rows.setdefault(name, {"shape": list(shape), "files": {}})["files"][file] = first
    cut = {name: entry for name, entry in sorted(rows.items()) if len(entry["files"]) > 1}
    index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": dict(sorted(weight_map.items()))}
    return files.encode(index | ({"rows": cut} if cut else {}))
