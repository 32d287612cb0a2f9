"""Limits of the machine on one thread: matrix products, memory traffic, exponentials."""

from collections.abc import Callable

import numpy as np

from harness.clock import Reading, clocked

ENTRIES = 10_000_000  # 240 MB in three arrays
BLOCK = 32_768  # entries whose exponentials stay in the cache


def stream(entries: int = ENTRIES) -> Callable[[], object]:
    """A call that reads two float64 arrays and writes a preallocated third: 24 bytes per entry."""
    one, other, out = np.ones(entries), np.ones(entries), np.ones(entries)
    return lambda: np.multiply(one, other, out=out)


def exponentials(entries: int) -> Callable[[], object]:
    """A call of np.exp on `entries` float64 entries, within the cache."""
    block = np.random.default_rng(0).random(BLOCK)
    out = np.empty_like(block)

    def call() -> None:
        for _ in range(entries // BLOCK):
            np.exp(block, out=out)

    return call


def products(rows: int, width: int, columns: int, dtype: str = "float32") -> tuple[Callable[[], object], float]:
    """The three products of a linear layer, forward and backward, into preallocated memory; and their FLOP."""
    import torch

    kind = getattr(torch, dtype)
    states, weight = torch.ones(rows, width, dtype=kind), torch.ones(columns, width, dtype=kind)
    logits = torch.ones(rows, columns, dtype=kind)
    of_states, of_weight = torch.ones_like(states), torch.ones_like(weight)

    def call() -> None:
        with torch.no_grad():
            torch.mm(states, weight.T, out=logits)
            torch.mm(logits, weight, out=of_states)
            torch.mm(logits.T, states, out=of_weight)

    return call, 6.0 * rows * width * columns


def gemm_rate(rows: int, width: int, columns: int, dtype: str = "float32", least_of: int = 3) -> float:
    """The best rate of `products`, in FLOP per CPU second."""
    call, flop = products(rows, width, columns, dtype)
    call()
    taken: list[Reading] = [clocked(call)[0] for _ in range(least_of)]
    return flop / min(reading.cpu for reading in taken)
