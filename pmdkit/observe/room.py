"""Whether the disk has room for the checkpoints that a run will still write: known once there is one."""

import shutil
from pathlib import Path

from pmdkit.observe.checkpoint import steps
from pmdkit.observe.files import megabytes


def shortage(checkpoints: Path, keep: int, left: int) -> str | None:
    """What a person should know before the disk is full, or None.

    Args:
        checkpoints: folder that holds at least one.
        keep: checkpoints that are kept; one more stands beside them while it is written.
        left: checkpoints that the run will still write.
    """
    there = steps(checkpoints)
    size = sum(path.stat().st_size for path in (checkpoints / f"step-{there[-1]}").iterdir())
    more = min(left, keep + 1 - len(there))
    free = shutil.disk_usage(checkpoints).free
    if free >= more * size:
        return None
    need = megabytes(more * size)
    return (
        f"the disk of {checkpoints} has {megabytes(free)} free, and the checkpoints to come need {need}: make room, "
        "or the run ends when it is full; what is saved stays intact"
    )
