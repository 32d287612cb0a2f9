"""Takes from this process what an answer has no need of: writing outside one folder, the network, other processes.

Linux does it for good (Landlock, a network namespace); elsewhere, and in addition, a hook of Python refuses. The hook
stops accidents and no attack. Reading is never confined.
"""

import ctypes
import os
import struct
import sys
from typing import Any

SYSCALLS = {"create": 444, "add": 445, "restrict": 446}
"Of Landlock, the same on all processors (linux/include/uapi/asm-generic/unistd.h)."
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
CHANGES = {1: 0x1FF2, 2: 0x3FF2, 3: 0x7FF2}
"By version (uapi/linux/landlock.h): write, remove, make; from 2 on move between folders; from 3 on truncate."
CONNECT, SIGNALS = 0b11, 0b11
"From version 4 on TCP (bind, connect); from version 6 on signals and abstract sockets out of this process."
NEW_NETWORK, NEW_USER = 0x40000000, 0x10000000
NO_NEW_PRIVILEGES = 38

REFUSED = {
    "start another program": (
        "subprocess.",
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.fork",
        "os.spawn",
        "pty.spawn",
    ),
    "use the network": ("socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto", "urllib."),
    "stop other programs": ("os.kill", "os.killpg"),
}
FILES = (
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.chmod",
    "os.chown",
    "os.truncate",
    "os.link",
    "os.symlink",
)


def confine(folder: str) -> list[str]:
    """Confine this process, once and for good; call it before there are threads.

    Args:
        folder: the only one that may be written to.

    Returns:
        What the system itself now refuses: "writes", "network".
    """
    kept = []
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        alone = libc.unshare(NEW_USER | NEW_NETWORK) == 0
        version = landlock(libc, folder)
        kept = ["writes"] * (version >= 1) + ["network"] * (alone or version >= 4)
    folder = os.path.realpath(folder)

    def hook(event: str, args: tuple[Any, ...]) -> None:
        for what, names in REFUSED.items():
            if event.startswith(names):
                raise PermissionError(f"an answer may not {what}")
        if (event == "open" and writes(args)) or event in FILES:
            for path in args[: 2 if event in ("os.rename", "os.link", "os.symlink") else 1]:
                if isinstance(path, str | bytes) and not inside(os.fsdecode(path), folder):
                    raise PermissionError("an answer may not change files")

    sys.addaudithook(hook)
    return kept


def writes(args: tuple[Any, ...]) -> bool:
    """Whether an `open` event (path, mode, flags) asks for more than reading."""
    return bool(args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND))


def inside(path: str, folder: str) -> bool:
    """Whether a path lies in a folder, links followed; the null device counts."""
    return path == os.devnull or os.path.commonpath([os.path.realpath(path), folder]) == folder


def landlock(libc: Any, folder: str) -> int:
    """Refuse changes of files outside a folder. Returns the version of Landlock, 0 where there is none."""
    version = libc.syscall(SYSCALLS["create"], None, 0, 1)
    if version < 1:
        return 0
    handled = CHANGES[min(version, 3)]
    attributes = struct.pack("=QQQ", handled, CONNECT, SIGNALS)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    rules = libc.syscall(SYSCALLS["create"], attributes, len(attributes), 0)
    if rules < 0:
        return 0
    for path, allowed in ((folder, handled), (os.devnull, handled & (WRITE_FILE | TRUNCATE))):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", allowed, place)
        failed = libc.syscall(SYSCALLS["add"], rules, 1, rule, 0)
        os.close(place)
        if failed:
            os.close(rules)
            return 0
    done = libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and libc.syscall(SYSCALLS["restrict"], rules, 0) == 0
    os.close(rules)
    return version if done else 0
