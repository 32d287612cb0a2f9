"""Memory of a process as Linux counts it: the peak that a call adds, and the peak of the whole process."""

import ctypes
import gc
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident(key: str) -> float:
    """VmRSS (current) or VmHWM (peak) of this process, in MiB."""
    return next(int(line.split()[1]) / 1024 for line in STATUS.read_text().splitlines() if line.startswith(key))


def peak_above(call: Callable[[], Any]) -> float:
    """Peak memory of a call above what the process held before it, in MiB."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # freed memory that is still held would hide part of what the call takes
    CLEAR.write_text("5")  # the peak starts again from here
    before = resident("VmRSS")
    call()
    return resident("VmHWM") - before


def peak() -> float:
    """Peak memory of this process, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
