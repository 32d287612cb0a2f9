"""Out of memory, told as what ran and which key of the spec asks for less."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from pmdkit.errors import EnvironmentLacks


@contextmanager
def memory_of(phase: str, knob: str) -> Iterator[None]:
    """Name the phase and the knob where the block runs out of memory.

    Args:
        phase: what runs, such as "update".
        knob: the key to lower, such as "update.token_budget".
    """
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError) as problem:
        raise EnvironmentLacks(told(phase, knob)) from problem
    except RuntimeError as problem:
        if "can't allocate memory" not in str(problem):  # what the CPU's allocator says
            raise
        raise EnvironmentLacks(told(phase, knob)) from problem


def told(phase: str, knob: str) -> str:
    """The sentence."""
    return (
        f"out of memory in the {phase}; the last checkpoint is intact: lower {knob}, say by half with "
        f"--set {knob}=..., or let --fit measure it"
    )
