"""Every call that changes a folder, numbered: the k-th is killed, fails, or is cut in half; all of them are recorded.

`Calls` stands between the process and the file system for one folder. It patches the functions of `os`, and `open`
in its writing modes, so that whatever Python code writes passes here. Nothing is really flushed to the disk: a kill
loses nothing of what was written. `forked` runs a function in a child that may die.
"""

import builtins
import errno
import io
import os
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

REAL = {
    name: getattr(os, name)
    for name in (
        "open", "write", "fsync", "close", "mkdir", "rename", "replace", "unlink", "remove", "rmdir",
    )
}  # fmt: skip
REAL_OPEN = io.open
NAMELESS = getattr(os, "O_TMPFILE", -1)


@dataclass(frozen=True)
class Call:
    """One call that changes the folder: the function in `os` (`fsync` of a folder is `sync names`) and its paths."""

    kind: str
    path: str
    target: str = ""


@dataclass(frozen=True)
class Fault:
    """What happens to the call of a number, from 1: before it or in the "half" of a write, the process is killed.

    With the number of an error, the call and later ones raise it: a full disk stays full.
    """

    at: int
    when: str
    error: int | None = None


class Calls:
    """Watches the calls below a folder while it is entered."""

    def __init__(self, root: Path, fault: Fault | None = None) -> None:
        self.root = os.path.realpath(root)
        self.fault = fault
        self.made: list[Call] = []
        self.struck = False
        self.handles: dict[int, tuple[str, bool]] = {}  # path, and whether it is written to
        self.stack = ExitStack()

    def __enter__(self) -> "Calls":
        changed: dict[str, Callable[..., Any]] = {
            "open": self.open,
            "write": self.write,
            "fsync": self.fsync,
            "close": self.close,
            "rename": lambda a, b, **kw: self.move("rename", a, b, **kw),
            "replace": lambda a, b, **kw: self.move("replace", a, b, **kw),
            **{name: self.plain(name) for name in ("mkdir", "unlink", "remove", "rmdir")},
        }
        for name, function in changed.items():
            self.stack.enter_context(mock.patch.object(os, name, function))
        for module in (builtins, io):
            self.stack.enter_context(mock.patch.object(module, "open", self.open_file))
        return self

    def __exit__(self, *unused: object) -> None:
        self.stack.close()

    def inside(self, path: Any, dir_fd: int | None = None) -> str | None:
        """The path below the folder, None where it is elsewhere. A link at its end is not followed."""
        if isinstance(path, int):
            return None
        text = os.fsdecode(path)
        if dir_fd is not None:
            if dir_fd not in self.handles:
                return None
            text = os.path.join(self.root, self.handles[dir_fd][0], text)
        parent, name = os.path.split(os.path.abspath(text))
        found = os.path.relpath(os.path.join(os.path.realpath(parent), name), self.root)
        return None if found.startswith("..") else found

    def change(self, call: Call, perform: Callable[[], Any], half: Callable[[], Any] | None = None) -> Any:
        """Number a call, and let the fault happen to it."""
        self.made.append(call)
        fault = self.fault
        if fault is None:
            return perform()
        mine = fault.at == len(self.made)
        if mine and fault.when == "half" and half is not None:
            half()
            self.strike(fault, call)
        if (mine and fault.when == "before") or (self.struck and self.refuses(call.kind)):
            self.strike(fault, call)
        return perform()

    def refuses(self, kind: str) -> bool:
        """Whether a disk that has failed fails at this call too; from a full one, a file may be deleted."""
        assert self.fault is not None
        full = self.fault.error in (errno.ENOSPC, errno.EDQUOT)
        return kind in ("open", "write", "fsync", "mkdir") if full else kind != "close"

    def strike(self, fault: Fault, call: Call) -> None:
        """The process dies, or the call fails, with the path where it was given one."""
        self.struck = True
        if fault.error is None:
            os.kill(os.getpid(), signal.SIGKILL)
        named = call.kind not in ("write", "fsync", "sync names", "close")
        raise OSError(fault.error, os.strerror(fault.error), *([os.path.join(self.root, call.path)] if named else []))

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        """A file that is made counts; one that is read does not, but its handle is remembered."""
        where = self.inside(path, dir_fd)

        def perform() -> int:
            return int(REAL["open"](path, flags, mode, dir_fd=dir_fd))

        if where is None or flags & NAMELESS == NAMELESS:
            return perform()
        new = flags & os.O_CREAT and not os.path.lexists(os.path.join(self.root, where))
        handle: int = self.change(Call("open", where), perform) if new or flags & os.O_TRUNC else perform()
        self.handles[handle] = (where, bool(flags & (os.O_WRONLY | os.O_RDWR)))
        return handle

    def write(self, handle: int, data: Any) -> int:
        """Bytes to a file."""
        if handle not in self.handles:
            return int(REAL["write"](handle, data))
        call = Call("write", self.handles[handle][0])
        cut = bytes(data)[: len(bytes(data)) // 2]
        return int(self.change(call, lambda: REAL["write"](handle, data), lambda: REAL["write"](handle, cut)))

    def fsync(self, handle: int) -> None:
        """To the disk: of a file its bytes, of a folder the names in it."""
        if handle in self.handles:
            where, written = self.handles[handle]
            names = not written and os.path.isdir(os.path.join(self.root, where))
            self.change(Call("sync names" if names else "fsync", where), lambda: None)

    def close(self, handle: int) -> None:
        """Some file systems tell only here that the disk is full."""
        where, written = self.handles.pop(handle, ("", False))
        if written:
            self.change(Call("close", where), lambda: REAL["close"](handle))
        else:
            REAL["close"](handle)

    def move(self, name: str, source: Any, target: Any, **where: Any) -> None:
        """Rename or replace."""
        start, end = self.inside(source), self.inside(target)
        if start is None or end is None:
            REAL[name](source, target, **where)
        else:
            self.change(Call("rename", start, end), lambda: REAL[name](source, target, **where))

    def plain(self, name: str) -> Callable[..., None]:
        """Calls with one path."""

        def call(path: Any, *more: Any, dir_fd: int | None = None, **rest: Any) -> None:
            where = self.inside(path, dir_fd)
            at = {} if dir_fd is None else {"dir_fd": dir_fd}
            missing = where is not None and not os.path.lexists(os.path.join(self.root, where))
            if where is None or (name == "mkdir") != missing:  # changes nothing: the call fails on its own
                REAL[name](path, *more, **at, **rest)
            else:
                kind = "unlink" if name == "remove" else name
                self.change(Call(kind, where), lambda: REAL[name](path, *more, **at, **rest))

        return call

    def open_file(self, file: Any, mode: str = "r", buffering: int = -1, *more: Any, **rest: Any) -> Any:
        """`open`: what is written passes through `write` above."""
        if not set(mode) & set("wax+") or self.inside(file) is None or "opener" in rest:
            return REAL_OPEN(file, mode, buffering, *more, **rest)
        assert "+" not in mode, "no file of a run is read and written at once"
        flags = {"w": os.O_TRUNC, "a": os.O_APPEND, "x": os.O_EXCL}[mode[0]]
        raw = io.BufferedWriter(Raw(self.open(file, os.O_WRONLY | os.O_CREAT | flags, 0o666)))
        return raw if "b" in mode else io.TextIOWrapper(raw, encoding="utf-8")


class Raw(io.RawIOBase):
    """A file whose writes are those of `os`, whichever they are at the moment."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self.handle

    def write(self, data: Any) -> int:
        return os.write(self.handle, data)

    def close(self) -> None:
        if not self.closed:
            try:
                super().close()
            finally:
                os.close(self.handle)


@contextmanager
def quick_place() -> Iterator[Path]:
    """A folder in memory where the machine has one: thousands of folders are made and deleted here."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as place:
        yield Path(place)


def forked(work: Callable[[], int], says: Path | None = None) -> int:
    """Exit code of a function in a child process, minus the signal where it was killed; stderr goes to a file."""
    _, status = os.waitpid(start_forked(work, says), 0)
    return os.waitstatus_to_exitcode(status)


def start_forked(work: Callable[[], int], says: Path | None = None) -> int:
    """The number of a child process that runs a function and leaves with its exit code."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # threads of torch that sleep, and are not used below
        child = os.fork()
    if child == 0:
        code = 99
        try:
            if says is not None:
                handle = REAL["open"](says, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
                os.dup2(handle, 2)
                sys.stderr = io.TextIOWrapper(io.FileIO(2, "w", closefd=False), write_through=True)
            code = work()
        except BaseException:
            import traceback

            os.write(2, traceback.format_exc().encode())
        finally:
            os._exit(code)
    return child
