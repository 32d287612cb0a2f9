"""Read a GGUF file, the format of llama.cpp: its metadata, and its tensors as float32."""

import math
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pmdkit.errors import UsageError, first_line

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9
BLOCK = 32  # numbers that share a scale
FORMATS = {
    0: ("F32", 1, np.dtype([("value", "<f4", 1)])),
    3: ("Q4_1", BLOCK, np.dtype([("scale", "<f2"), ("low", "<f2"), ("nibbles", "u1", BLOCK // 2)])),
    8: ("Q8_0", BLOCK, np.dtype([("scale", "<f2"), ("bytes", "i1", BLOCK)])),
}
"Number of a format: its name, how many numbers a block holds, and the layout of a block."


class GGUF:
    """A file in memory.

    Source: docs/gguf.md of ggml, versions 2 and 3, little-endian.

    Attributes:
        metadata: values by key, such as "llama.block_count".
        tensors: name to (shape, format, place of the first byte); the last axis of a shape varies fastest.

    Raises:
        UsageError: it is not a GGUF file, its bytes are damaged, or a tensor has a format that is not in FORMATS.
    """

    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 4
        with well_formed():
            if data[:4] != b"GGUF" or self.take("I") not in (2, 3):
                raise UsageError("the file is not GGUF of version 2 or 3; take another file")
            count, keys = self.take("Q"), self.take("Q")
            self.metadata = {self.text(): self.value(self.take("I")) for _ in range(keys)}
            self.tensors: dict[str, tuple[tuple[int, ...], int, int]] = {}
            for _ in range(count):
                name = self.text()
                shape = tuple(self.take("Q") for _ in range(self.take("I")))[::-1]
                self.tensors[name] = shape, self.take("I"), self.take("Q")
            aligned = int(self.metadata.get("general.alignment", 32))
            self.start = -(-self.place // aligned) * aligned

    def take(self, kind: str) -> Any:
        """Read the next little-endian number of a struct format, and move behind it."""
        (found,) = struct.unpack_from("<" + kind, self.data, self.place)
        self.place += struct.calcsize("<" + kind)
        return found

    def text(self) -> str:
        """The next text: its length in bytes, then UTF-8."""
        text: bytes = self.take(f"{self.take('Q')}s")
        return text.decode()

    def value(self, kind: int) -> Any:
        """The next value, of the GGUF type with the number `kind`: a number, a text or a list."""
        if kind == ARRAY:
            inner, count = self.take("I"), self.take("Q")
            return [self.value(inner) for _ in range(count)]
        return self.text() if kind == STRING else self.take(SCALARS[kind])

    def weights(self) -> Iterator[tuple[str, NDArray[np.float32]]]:
        """Every tensor by its name in the file, as float32."""
        for name, (shape, kind, offset) in self.tensors.items():
            if kind not in FORMATS:
                known = ", ".join(name for name, *_ in FORMATS.values())
                raise UsageError(f"tensor {name} has format {kind} of ggml; expected one of {known}")
            _, size, layout = FORMATS[kind]
            with well_formed():
                blocks = np.frombuffer(self.data, layout, math.prod(shape) // size, self.start + offset)
                found = dequantize(blocks).reshape(shape)
            yield name, found


@contextmanager
def well_formed() -> Iterator[None]:
    """Context for reading bytes that may be anything."""
    try:
        yield
    except (struct.error, ValueError, LookupError, TypeError, ArithmeticError, RecursionError, MemoryError) as problem:
        if isinstance(problem, UsageError):
            raise
        what = f"{type(problem).__name__}: {first_line(problem)}"
        raise UsageError(f"the file is damaged, or not GGUF ({what}); take another file") from problem


def dequantize(blocks: NDArray[Any]) -> NDArray[np.float32]:
    r"""[n] blocks as [n, numbers] float32: scale times the stored integer, plus in Q4_1 the lowest value of the block.

    The first half of a Q4_1 block is in the low four bits of its bytes, the second half in the high ones.
    """
    fields = blocks.dtype.names or ()
    if "value" in fields:
        return blocks["value"]
    scale = blocks["scale"].astype(np.float32)[:, None]
    if "bytes" in fields:
        return scale * blocks["bytes"]
    nibbles = np.concatenate([blocks["nibbles"] & 15, blocks["nibbles"] >> 4], axis=1)
    return scale * nibbles + blocks["low"].astype(np.float32)[:, None]
