"""Memory of a process as Linux counts it: what a call adds at its peak, and the peak of the whole process."""

import ctypes
import gc
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def resident(key: str) -> float:
    """VmRSS (now) or VmHWM (most) of this process, MiB."""
    return next(int(line.split()[1]) / 1024 for line in STATUS.read_text().splitlines() if line.startswith(key))


def peak_above(call: Callable[[], Any]) -> float:
    """MiB that a call takes at its peak above what was there before it."""
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # freed memory that is kept for later would hide some that is taken
    CLEAR.write_text("5")  # the peak starts again from here
    before = resident("VmRSS")
    call()
    return resident("VmHWM") - before


def peak() -> float:
    """MiB that this process held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
