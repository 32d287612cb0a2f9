"""Files that survive a kill at any moment: written aside, flushed to the disk, then renamed into place."""

import json
import os
from pathlib import Path
from typing import Any


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder; a rename there is durable on its own
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write(path: Path, data: bytes) -> None:
    """Write a file and flush it. A full disk raises here, not at some later close."""
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def replace(path: Path, data: bytes) -> None:
    """Put a whole file in place of another: a reader sees the old one or the new one."""
    aside = path.with_name(f".{path.name}.part")
    write(aside, data)
    os.replace(aside, path)
    sync(path.parent)


def encode(value: Any) -> bytes:
    """JSON for people: indented, NaN refused."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()
