"""What is on the disk after a loss of power: recorded calls are replayed, and what was not flushed may be missing.

A kill loses nothing of the page cache, so no kill sees a missing fsync. Here a disk keeps, of a file, the bytes of its
last fsync, and of a folder the names of its last fsync; whatever came later is there, not there or there in part,
each on its own. That is less than file systems in use promise, and what POSIX does.
"""

import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .file_calls import Call


@dataclass
class Node:
    """A file or a folder of the replayed disk.

    Attributes:
        data: of a file, as the process sees it; None for a folder.
        flushed: of a file, at its last fsync.
        names: of a folder, as the process sees them.
        kept: of a folder, at its last fsync.
    """

    data: bytes | None = None
    flushed: bytes = b""
    names: dict[str, "Node"] = field(default_factory=dict)
    kept: dict[str, "Node"] = field(default_factory=dict)


def replay(root: Node, call: Call) -> None:
    """Do one call to a disk."""
    parent, name = find(root, call.path)
    if call.kind == "open":
        node = parent.names.setdefault(name, Node(b""))
        node.data = b""
    elif call.kind == "mkdir":
        parent.names[name] = Node()
    elif call.kind == "write":
        node = parent.names[name]
        node.data = (node.data or b"") + call.data
    elif call.kind == "fsync":
        node = parent.names[name]
        node.flushed = node.data or b""
    elif call.kind == "sync names":
        node = parent.names[name] if name else root
        node.kept = dict(node.names)
    elif call.kind == "rename":
        there, target = find(root, call.target)
        there.names[target] = parent.names.pop(name)
    elif call.kind in ("unlink", "rmdir"):
        del parent.names[name]
    else:
        assert call.kind == "close", f"{call.kind} is not replayed"


def find(root: Node, path: str) -> tuple[Node, str]:
    """The folder that a path stands in, and its name there; the root itself has none."""
    *folders, name = path.split("/")
    for part in folders:
        root = root.names[part]
    return root, "" if name == "." else name


@dataclass(frozen=True)
class Loss:
    """What becomes of all that was not flushed.

    Attributes:
        data: "gone", "half" or "there".
        names: "gone", "there", or "some", each as chance has it.
        seed: of chance.
    """

    data: str
    names: str
    seed: int = 0


LOSSES = (
    Loss("gone", "gone"), Loss("gone", "there"), Loss("half", "there"), Loss("there", "gone"),
    Loss("gone", "some", 1), Loss("half", "some", 2), Loss("there", "some", 3),
)  # fmt: skip


def remains(root: Node, loss: Loss) -> dict[str, bytes | None]:
    """What is left of a disk: files with their bytes, folders with None, a folder before what is in it."""
    chance = random.Random(loss.seed)
    found: dict[str, bytes | None] = {}

    def look(folder: Node, path: str) -> None:
        for name in sorted(folder.names.keys() | folder.kept.keys()):
            new, old = folder.names.get(name), folder.kept.get(name)
            late = {"gone": False, "there": True, "some": chance.random() < 0.5}[loss.names]
            node = new if new is old or late else old
            if node is not None:
                found[f"{path}{name}"] = None if node.data is None else left(node, loss)
                look(node, f"{path}{name}/")

    look(root, "")
    return found


def write(contents: dict[str, bytes | None], place: Path) -> None:
    """Make a folder of what is left."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for name, data in contents.items():
        if data is None:
            (place / name).mkdir()
        else:
            (place / name).write_bytes(data)


def left(node: Node, loss: Loss) -> bytes:
    """The bytes of a file. A longer one lost its end; of one that was written over, all that came later."""
    assert node.data is not None
    if loss.data == "there" or node.data == node.flushed:
        return node.data
    kept = node.flushed if node.data.startswith(node.flushed) else b""
    more = node.data[len(kept) :]
    return kept + (more[: len(more) // 2] if loss.data == "half" else b"")


def crashes(calls: Sequence[Call]) -> Iterator[tuple[int, Loss, dict[str, bytes | None]]]:
    """Every disk that a loss of power can leave behind the first so many calls, from an empty one."""
    root = Node()
    for number in range(len(calls) + 1):
        for loss in LOSSES:
            yield number, loss, remains(root, loss)
        if number < len(calls):
            replay(root, calls[number])
