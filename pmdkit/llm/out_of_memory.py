"""Out of memory, with the setting to lower."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pmdkit.errors import EnvironmentLacks


@contextmanager
def explain_out_of_memory(phase: str, key: str) -> Iterator[None]:
    """Raise EnvironmentLacks with advice if the block runs out of memory.

    Args:
        phase: what is running, such as "update".
        key: the setting to lower, such as "update.token_budget".
    """
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as problem:
        known = isinstance(problem, torch.OutOfMemoryError | MemoryError)
        if not known and "can't allocate memory" not in str(problem):  # the message of the CPU's allocator
            raise
        raise EnvironmentLacks(
            f"out of memory in the {phase}; the last checkpoint is intact: lower {key}, say by half with "
            f"--set {key}=..."
        ) from problem
