"""Predicted time of kernels from a data sheet: a lower bound, in which nothing is fitted to a measurement.

A kernel takes as long as its products at the rate that the best product reaches, or as its bytes at the bandwidth of
the data sheet, whichever is longer; none takes less than `data_sheets.SMALLEST`. The host issues one every
`PRACTICE.launch` seconds, so many short kernels wait for the host, and a wait of the host for the device joins the two.
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from pmdkit_lab.planner.cluster import PRACTICE
from pmdkit_lab.planner.data_sheets import GPU

WAIT = 10e-6  # seconds from the end of the last kernel until the host issues another
FILLS = {"zero_", "fill_", "copy_"}  # write what they are given without reading it
GATHERS = {"index", "index_select", "gather", "embedding", "rows_of_tokens"}  # read as much as they return
SCATTERS = {"index_put", "index_put_", "index_add_", "scatter_add_", "scatter_add", "embedding_dense_backward"}


@dataclass(frozen=True)
class Work:
    """What one kernel does: FLOPs of products in `dtype`, bytes `moved`; `flash` says that it is attention."""

    dtype: str
    flops: int
    moved: int
    flash: bool = False


@dataclass
class Clock:
    """Seconds on the host and on the device since the rehearsal began.

    Attributes:
        gpu: the device's data sheet.
        host, device: when the host is ready to issue, and when the device will have finished all that was issued.
    """

    gpu: GPU
    host: float = 0.0
    device: float = 0.0
    lapped: float = 0.0

    def run(self, work: Work) -> tuple[float, str, int]:
        """Issue a kernel; returns its seconds on the device, what limits it, and how much it has of that."""
        kind = "attention" if work.flash else work.dtype
        amounts = {kind: work.flops, "memory": work.moved, "smallest": 1}
        times = {name: amount / self.gpu.rate(name) for name, amount in amounts.items()}
        limit = max(times, key=times.__getitem__)
        self.host += PRACTICE.launch
        self.device = max(self.device, self.host) + times[limit]
        return times[limit], limit, amounts[limit]

    def wait(self) -> None:
        """Let the host wait until the device has finished."""
        self.host = max(self.host, self.device) + WAIT

    def lap(self) -> float:
        """Seconds since the last call, once the device has finished."""
        self.host = self.device = now = max(self.host, self.device)
        seconds, self.lapped = now - self.lapped, now
        return seconds


def bytes_moved(schema: Any, args: Any, kwargs: Any, out: Any) -> int:
    """Bytes of device memory that an operator has to read and write, by its schema.

    Each input and output counts once, and one that is changed in place twice. Of a table that is indexed, only the rows
    that are read or written count.
    """
    name = schema.name.partition("::")[2]
    fills, pattern = name in FILLS, name.endswith("_like") or name.startswith("new_")
    given, inputs = set[int](), list[int]()
    for number, argument in enumerate(schema.arguments):
        value = args[number] if number < len(args) else kwargs.get(argument.name)
        changed = argument.alias_info is not None and argument.alias_info.is_write and argument.name != "grads"
        for tensor in fakes(value):
            given.add(id(tensor))
            # what is changed is read and written, a buffer for the result is only written, a pattern is not read
            times = 1 if not changed or fills or argument.is_out else 2
            times = 0 if pattern else times
            inputs.append(times * size(tensor))
    fresh = sum(size(tensor) for tensor in fakes(out) if id(tensor) not in given)
    moved = sum(inputs) + fresh
    if name in GATHERS:
        moved = 2 * fresh + sum(inputs[1:])
    elif name in SCATTERS:  # each row is read, and added to a row of the result
        rows = fakes(args[0] if name == "embedding_dense_backward" else args[1:])
        moved = 3 * max((size(tensor) for tensor in rows), default=0) + fresh * (name == "embedding_dense_backward")
    return moved


def fakes(value: Any) -> list[FakeTensor]:
    """The tensors on the device in a value."""
    return [x for x in tree_leaves(value) if isinstance(x, FakeTensor)]


def size(tensor: Tensor) -> int:
    """Bytes that a tensor covers; an axis along which it is expanded counts once."""
    count = tensor.element_size()
    for length, stride in zip(tensor.shape, tensor.stride(), strict=True):
        count *= length if stride or not length else 1
    return count
