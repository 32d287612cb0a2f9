"""Files that survive a kill at any moment: written aside, flushed to the disk, then renamed into place.

By default files are accessible to their owner only, and nothing is written through a symbolic link.
"""

import errno
import json
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

from pmdkit.errors import UsageError

PRIVATE = 0o600
PUBLIC = 0o666  # file mode, minus the umask, of figures and tables that are meant to be shown
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
MORE = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)


def sync(path: Path) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    if os.name == "nt" and path.is_dir():  # Windows cannot open a folder; a rename there is durable on its own
        return
    try:
        handle = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as problem:
        raise explain_error(problem, path) from problem


def write(path: Path, data: bytes, mode: int = PRIVATE, flush: bool = True) -> None:
    """Write a new file in place of any other; without `flush` it survives a kill, but not a loss of power."""
    path.unlink(missing_ok=True)
    write_bytes(path, NEW, data, mode, flush)


def append(path: Path, data: bytes) -> None:
    """Append to a file and flush it, and its name too if it is new."""
    new = not path.exists()
    write_bytes(path, MORE, data, PRIVATE)
    if new:
        sync(path.parent)


def replace(path: Path, data: bytes, mode: int = PRIVATE, flush: bool = True) -> None:
    """Replace a file atomically: a reader sees the old one or the new one. An OSError leaves the old one unchanged."""
    aside = path.with_name(f".{path.name}.part")
    try:
        write(aside, data, mode, flush)
        os.replace(aside, path)
    except OSError:
        with suppress(OSError):  # the first error is the one to report
            remove(aside)
        if os.path.isdir(path):  # unlike Path.is_dir, it does not raise
            raise UsageError(f"{path} is a folder; expected a file, or nothing yet: move the folder away") from None
        raise
    if flush:
        sync(path.parent)


def make_folder(path: Path) -> None:
    """Create a folder accessible to its owner only, and its missing parents; their names are flushed too."""
    missing = [place for place in (path, *path.parents) if not place.exists()]
    for place in reversed(missing[1:]):
        place.mkdir(exist_ok=True)  # one by one: `parents` recurses, and a path may be deeper than Python's stack
    path.mkdir(mode=0o700, exist_ok=True)
    for place in missing:
        sync(place.parent)


def remove(path: Path) -> None:
    """Delete a file, a folder with its contents, or a link but not its target; a missing path is fine."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def encode(value: Any) -> bytes:
    """Readable JSON: indented, NaN refused."""
    return (json.dumps(value, indent=2, allow_nan=False) + "\n").encode()


def write_bytes(path: Path, flags: int, data: bytes, mode: int, flush: bool = True) -> None:
    """Write bytes to a file and flush them. Every failure is raised, including a disk found full only at close."""
    try:
        handle = os.open(path, flags, mode)
        try:
            left = memoryview(data)
            while left:  # a write may stop short, at 2 GiB for one
                left = left[os.write(handle, left) :]
            if flush:
                os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as problem:
        raise explain_error(problem, path, len(data)) from problem


def explain_error(problem: OSError, path: Path, size: int = 0) -> OSError:
    """Add the path to an error and, if the disk is full, the space needed and the space free."""
    if problem.errno is None:
        return problem
    reason = os.strerror(problem.errno)
    if problem.errno == errno.ELOOP:
        reason = "a symbolic link, and files are not written through links"
    elif problem.errno in (errno.ENOSPC, errno.EDQUOT) and size:
        reason += f": {size / 1e6:.3g} MB to write"
    if problem.errno == errno.ENOSPC and size:  # a quota's remaining space is not known here
        reason += f", {shutil.disk_usage(path.parent).free / 1e6:.3g} MB free on the disk"
    return OSError(problem.errno, reason, str(path))
