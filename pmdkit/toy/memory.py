"""Freed memory is kept for the next tensor. A setting of the allocator; what is computed does not depend on it."""

from functools import cache

import torch

BLOCK = 31 * 2**20  # bytes; glibc learns from blocks of up to 32 MiB


@cache
def keep_freed_memory() -> None:
    """Have glibc keep up to twice `BLOCK` bytes of freed memory, from now on in this process.

    By default it hands tensors of some hundred kilobytes back to the kernel, which then has to clear every page that
    the next tensor touches. It changes its mind once a larger block was freed: see `M_MMAP_THRESHOLD` in mallopt(3).
    This block is never touched, so it costs no memory. Elsewhere than under glibc, and where the environment sets
    `MALLOC_TRIM_THRESHOLD_` or its like, nothing changes.
    """
    torch.empty(BLOCK, dtype=torch.uint8, device="cpu")
