"""How a process gives up its rights, for good, before it runs the code of an answer.

There are several layers, because each of them is missing on some systems. The kernel refuses calls (syscalls.py) and
changes to files (Landlock); limits bound memory, processor time, threads and files; a namespace removes the network.
In addition, a Python audit hook refuses with messages that a learner understands; it stops accidents, not attacks.
Where the system provides namespaces (isolation.py), they already surround all this.
"""

import ctypes
import math
import os
import resource
import struct
import sys
from pathlib import Path
from typing import Any

from pmdkit_course.syscalls import NO_NEW_PRIVILEGES, refuse_calls

FILE_SIZE = 64 * 2**20
"Largest file, in bytes, that an answer may write in its own folder; where the folder is isolated, all files together."
OPEN_FILES = 256
THREADS = 64
"Per answer, including the process that loaded the packages. The account's other processes are in another namespace."

LANDLOCK = {"create": 444, "add": 445, "restrict": 446}
"The same numbers on all processors (linux/include/uapi/asm-generic/unistd.h)."
WRITE_FILE, TRUNCATE = 1 << 1, 1 << 14
CHANGES = {1: 0x1FF2, 2: 0x3FF2, 3: 0x7FF2}
"By version (uapi/linux/landlock.h): write, remove, make; from 2 on move between folders; from 3 on truncate."
CONNECT, SIGNALS = 0b11, 0b11
"From version 4 on, TCP (bind, connect); from version 6 on, signals and abstract sockets that leave this process."
NEW_NETWORK, NEW_USER = 0x40000000, 0x10000000

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
    "change modes, owners or times of files": ("os.chmod", "os.chown", "os.utime", "os.setxattr", "os.removexattr"),
}
FILES = ("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.truncate", "os.link", "os.symlink")


def limit(memory: int, seconds: float, isolated: bool) -> None:
    """Set hard limits for this process, which an answer cannot raise.

    Args:
        memory: bytes of address space; 0 for no limit.
        seconds: time of an answer; about twice as much processor time is allowed. The grader watches the wall clock;
            this limit also works when the grader itself is stopped.
        isolated: this process has its own user namespace, so that only its processes count as threads. Otherwise
            everything that the account runs would count, and nothing for root.
    """
    processor = math.ceil(2 * seconds) + 2
    bounds = {
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_FSIZE: (FILE_SIZE, FILE_SIZE),
        resource.RLIMIT_NOFILE: (OPEN_FILES, OPEN_FILES),
        resource.RLIMIT_CPU: (processor, processor + 1),  # SIGXCPU says why; SIGKILL follows where that is ignored
    }
    if isolated:
        bounds[resource.RLIMIT_NPROC] = (THREADS, THREADS)
    if memory:
        bounds[resource.RLIMIT_AS] = (memory, memory)
    for which, wanted in bounds.items():
        hard = resource.getrlimit(which)[1]
        soft, highest = (value if hard == resource.RLIM_INFINITY else min(value, hard) for value in wanted)
        resource.setrlimit(which, (soft, highest))


def address_space() -> int:
    """Bytes of this process, 0 if the system does not report it. The verifier's function would import gymnasium."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def confine(folder: str, isolated: bool) -> list[str]:
    """Confine this process for good; call it while it has a single thread.

    Args:
        folder: the only folder that may be written to.
        isolated: whether it runs in namespaces of its own.

    Returns:
        What the system itself now refuses: "processes" (other programs and processes, modes and times of files),
        "writing", "network", and "reading" of other files.
    """
    kept = ["reading"] * isolated
    if sys.platform == "linux":
        libc = ctypes.CDLL(None, use_errno=True)
        alone = isolated or libc.unshare(NEW_USER | NEW_NETWORK) == 0
        version = landlock(libc, folder)
        filtered = refuse_calls()  # last, because it refuses the calls made above
        kept += ["processes"] * filtered + ["writing"] * (isolated or version >= 1)
        kept += ["network"] * (alone or filtered or version >= 4)
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
    """Whether a path is inside a folder after following links; the null device counts as inside."""
    return path == os.devnull or os.path.commonpath([os.path.realpath(path), folder]) == folder


def landlock(libc: Any, folder: str) -> int:
    """Refuse changes to files outside a folder. Returns the version of Landlock, 0 if it is not available."""
    version = libc.syscall(LANDLOCK["create"], None, 0, 1)
    if version < 1:
        return 0
    handled = CHANGES[min(version, 3)]
    attributes = struct.pack("=QQQ", handled, CONNECT, SIGNALS)[: 24 if version >= 6 else 16 if version >= 4 else 8]
    rules = libc.syscall(LANDLOCK["create"], attributes, len(attributes), 0)
    if rules < 0:
        return 0
    for path, allowed in ((folder, handled), (os.devnull, handled & (WRITE_FILE | TRUNCATE))):
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", allowed, place)
        failed = libc.syscall(LANDLOCK["add"], rules, 1, rule, 0)
        os.close(place)
        if failed:
            os.close(rules)
            return 0
    done = libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0 and libc.syscall(LANDLOCK["restrict"], rules, 0) == 0
    os.close(rules)
    return version if done else 0
