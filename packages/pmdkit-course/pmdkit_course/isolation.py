"""Run a command in its own namespaces: it sees the interpreter's files, one folder and only its own processes.

It runs as a script in front of the command, without the package: `python -I -S isolation.py OPTIONS COMMAND...`. The
command is process 1 of its namespace. When the command, this script, or the process that started the script ends, the
kernel ends everything that the command started. Needs Linux 5.14 or newer; nothing has to be installed, neither
bubblewrap nor a setuid program.

Bubblewrap would do the same with one exception: under it, root stays root outside the namespace and forks past
RLIMIT_NPROC. Here, a command started by root runs as an account without rights (`NOBODY`).
"""

import contextlib
import ctypes
import importlib.util
import json
import os
import select
import signal
import site
import struct
import sys
from collections.abc import Iterable
from typing import Any

NEW_MOUNTS, NEW_IPC, NEW_USER, NEW_PIDS, NEW_NETWORK = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
"linux/sched.h"
READ_ONLY, NO_SETUID, NO_DEVICES, NO_PROGRAMS, BIND, RECURSIVE, PRIVATE = 1, 2, 4, 8, 0x1000, 0x4000, 0x40000
DETACHED = 2
"linux/mount.h: flags of mount, and of umount2. The first four are also attributes of mount_setattr."
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
MOUNT_SETATTR, HERE, WHOLE_TREE = 442, -100, 0x8000
DIE_WITH_PARENT, NO_NEW_PRIVILEGES = 1, 38
NOBODY = 65534
"The account of a command started by root; it owns no file and no other process."
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/etc/ld.so.cache", "/etc/alternatives")
CPUS = "/sys/devices/system/cpu"
"torch asks which processor it runs on."
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
FILES = 4096
"How many files an answer may create in its folder."


class Unavailable(Exception):
    """The system does not provide what is needed; the message says what."""


def main(options: dict[str, Any], command: list[str]) -> int:
    """Run the command; returns its exit code, or 128 plus the signal's number, as in shells. SIGTERM ends it at once.

    If isolation is not possible, a message with the key "isolation" is sent to standard output, and the command never
    runs.
    """
    try:
        unshare()
    except Unavailable as problem:
        return failed(problem)
    watched, held = os.pipe()  # only this process keeps `held`, so it closes when this process is killed
    child = os.fork()
    if child == 0:
        os.close(held)
        try:
            see_only(options["visible"], options["folder"], options["folder_mb"])
            give_up_rights()
            require_readable(options["visible"])
            with_parent(watched)
            os.chdir(options["folder"])
            os.execv(command[0], command)
        except (OSError, Unavailable) as problem:
            os._exit(failed(problem))
    signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGKILL))
    control(DIE_WITH_PARENT, signal.SIGKILL)
    if os.getppid() != options["parent"]:
        os.kill(child, signal.SIGKILL)
    for descriptor in (0, 1, watched):  # the command's pipes close with the command
        os.close(descriptor)
    # the kernel reports process 1 only when its namespace is empty: nothing is left when this returns
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return code if code >= 0 else 128 - code


def failed(problem: Exception) -> int:
    """Send the reason, as a message of `pmdkit.processes`; returns the exit code."""
    body = json.dumps({"isolation": str(problem)}).encode()
    os.write(1, struct.pack(">I", len(body)) + body)
    return 1


def unshare() -> None:
    """Create namespaces. Root needs no user namespace at this point, and can reach its own files only without one."""
    uid, gid = os.geteuid(), os.getegid()
    spaces = NEW_MOUNTS | NEW_IPC | NEW_NETWORK | NEW_PIDS
    require(library().unshare(spaces if uid == 0 else spaces | NEW_USER), "namespaces")
    if uid != 0:
        try:
            for name, content in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(content)
        except OSError as problem:
            raise Unavailable(f"a user namespace: {problem.strerror}") from problem


def see_only(visible: Iterable[str], folder: str, folder_mb: int) -> None:
    """Replace the root by one that has these files, read-only, and an empty folder in memory.

    Args:
        visible: absolute paths, none of them inside another.
        folder: an existing folder, where the new root is assembled. In it, the writable folder has the same path.
        folder_mb: size of the writable folder.
    """
    mount(None, "/", None, RECURSIVE | PRIVATE)
    mount("tmpfs", folder, "tmpfs", NO_SETUID | NO_DEVICES, "mode=755,size=1m")
    for path in (*visible, CPUS, *DEVICES):
        if os.path.islink(path):
            os.symlink(os.readlink(path), folder + path)
        elif os.path.exists(path):
            add(path, folder)
    for path in (folder, "/proc"):
        os.makedirs(folder + path)
    attributes = struct.pack("=QQQQ", READ_ONLY | NO_SETUID | NO_DEVICES, 0, 0, 0)
    require(library().syscall(MOUNT_SETATTR, HERE, folder.encode(), WHOLE_TREE, attributes, 32), "read-only mounts")
    for path in DEVICES:  # a second time, as devices and not as files
        mount(path, folder + path, None, BIND)
    mount("proc", folder + "/proc", "proc", READ_ONLY | NO_SETUID | NO_DEVICES | NO_PROGRAMS)
    # only the owner may write to the folder, and a command started by root is nobody by then
    owner = f"uid={NOBODY},gid={NOBODY}," if os.geteuid() == 0 else ""
    own = f"{owner}mode=700,size={folder_mb}m,nr_inodes={FILES}"
    mount("tmpfs", folder + folder, "tmpfs", NO_SETUID | NO_DEVICES | NO_PROGRAMS, own)
    os.chdir(folder)
    number = PIVOT_ROOT.get(os.uname().machine, -1)
    require(library().syscall(number, b".", b"."), "a separate root")  # the old one then lies on top of the new one
    require(library().umount2(b".", DETACHED), "a separate root")
    os.chdir("/")


def add(path: str, root: str) -> None:
    """Bind a file or a folder, with everything mounted below it, to the same path under the new root."""
    place = root + path
    if os.path.isdir(path):
        os.makedirs(place, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(place), exist_ok=True)
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
    mount(path, place, None, BIND | RECURSIVE)


def give_up_rights() -> None:
    """Give up all rights. Root becomes nobody, in a user namespace where only its own processes count for a limit.

    The capabilities that come with a user namespace end when the command starts, since its user is not root there.
    """
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
        require(library().unshare(NEW_USER), "a user namespace")
    control(NO_NEW_PRIVILEGES, 1)


def require_readable(visible: Iterable[str]) -> None:
    """Raise Unavailable if the command's account cannot read a file or folder."""
    for path in visible:
        if not os.access(path, os.R_OK):
            raise Unavailable(f"{path} is not readable by everybody: chmod o+rX, or run as the account that owns it")


def with_parent(watched: int) -> None:
    """Die with the process outside of the namespace. Call this last: a change of rights would undo it."""
    control(DIE_WITH_PARENT, signal.SIGKILL)
    if select.select([watched], [], [], 0)[0]:  # already gone; getppid would not tell, it is always 0 in here
        os._exit(1)
    os.close(watched)


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """Call mount(2)."""
    given = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    require(library().mount(*given[:3], ctypes.c_ulong(flags), given[3]), f"mounting {source or target}")


def control(option: int, value: int) -> None:
    """Call prctl(2) for this process."""
    library().prctl(option, value, 0, 0, 0)


def library() -> Any:
    """The C library."""
    return ctypes.CDLL(None, use_errno=True)


def require(result: int, what: str) -> None:
    """Raise Unavailable, with the system's reason, if a call failed."""
    if result != 0:
        raise Unavailable(f"{what}: {os.strerror(ctypes.get_errno())}")


def visible_paths(packages: Iterable[str], more: Iterable[str] = ()) -> list[str]:
    """Paths that a Python process with these packages reads: system, interpreter, installed packages; not the home.

    From a checkout, or any other folder on the path, only the packages are included.
    """
    found = [*SYSTEM, sys.prefix, sys.base_prefix, *more]
    found += [*site.getsitepackages(), site.getusersitepackages()]
    found += [path for path in sys.path if os.path.basename(path) in ("site-packages", "dist-packages")]
    found += os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    for name in packages:
        with contextlib.suppress(ImportError, ValueError):
            spec = importlib.util.find_spec(name)
            found += spec.submodule_search_locations or [] if spec else []
    links = [path for path in SYSTEM if os.path.islink(path)]  # on most systems /bin is usr/bin
    real = {os.path.realpath(path) for path in found if os.path.isabs(path) and os.path.exists(path)}
    named = {os.path.abspath(path) for path in found if os.path.isabs(path) and os.path.isdir(path)}
    named = {path for path in named if not any(within(path, link) for link in links)}
    both = (real | named) - {"/"}
    return links + sorted(path for path in both if not any(within(path, other) for other in both if other != path))


def within(path: str, folder: str) -> bool:
    """Whether a path is this folder or inside it."""
    return path == folder or path.startswith(folder + os.sep)


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), sys.argv[2:]))
