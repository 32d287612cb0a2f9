"""A process that runs one learner's code under limits and hands back what it returned. It judges nothing.

Started by sandbox.py with its options as JSON; the pipes and their messages are those of the verifier's workers. Before
it reads any code it takes from itself what an answer has no need of: writing outside one folder, the network, other
processes. Linux does that for good (Landlock, a network namespace); elsewhere, and in addition, a hook of Python
refuses. The hook stops accidents and no attack. Reading is never confined.
"""

import ast
import builtins
import contextlib
import ctypes
import json
import os
import resource
import struct
import sys
import warnings
from typing import Any

from pmdkit.envs.verifier.worker import address_space, allow_seconds
from pmdkit.learn import extras, notebooks, serialization
from pmdkit.learn.judging import ONLY_ITSELF, Failed, call, raised
from pmdkit.processes import Message, claim_pipes, die_with_parent, receive_request, send_reply

FILE_SIZE = 64 * 2**20
"Bytes of any one file that an answer may write in its own folder."

KNOWN = ("pmdkit", "numpy", "scipy", "torch", "matplotlib", "gymnasium", "transformers")
"Packages that lessons import. A torch for accelerators takes gigabytes of address space before anybody uses it."


def main(options: Message) -> None:
    """Take away what is not needed, say so, then load code and call it until the pipe closes."""
    requests, replies = claim_pipes()
    kept = confine(options["folder"])
    die_with_parent(options["parent"])
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_SIZE, FILE_SIZE))
    warnings.simplefilter("ignore")
    send_reply(replies, {"ready": True, "kept": kept})
    function: Any = None
    while (request := receive_request(requests)) is not None:
        if "cell" in request:
            import_known(request, options["memory_mb"])
            allow_seconds(request["seconds"])
            function, reply = load(request)
        else:
            allow_seconds(request["seconds"])
            reply = call_answer(function, request)
        send_reply(replies, reply)


def import_known(request: Message, memory_mb: int) -> None:
    """Load the course's own packages without limits, then limit the memory that comes on top of them."""
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    serialization.unpack(request["sample"])
    sources = [*request["imports"], request["cell"]]
    for node in (node for source in sources for node in notebooks.parsed(source)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        module = node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name
        if module.partition(".")[0] in KNOWN:
            with contextlib.suppress(Exception):  # the learner's own import meets the same error, and is told
                exec(compile(ast.Module([node], []), "<known>", "exec"), {})
    if used := address_space():  # elsewhere than on Linux it is not told, and not limited
        limit = used + memory_mb * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def load(request: Message) -> tuple[Any, Message]:
    """Run imports and the cell; the function it defines, and what is to be said if it defines none."""
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    name = request["name"]
    try:
        exec(compile("\n".join(request["imports"]), "<imports>", "exec"), names)
        exec(compile(request["cell"], "<cell>", "exec"), names)
    except SyntaxError as error:
        place = f" in line {error.lineno} of the cell" if error.filename == "<cell>" else ""
        return None, {"failed": f"The code does not parse{place}: {error.msg}."}
    except ModuleNotFoundError as error:
        return None, {
            "failed": f"It imports {error.name}, which is not installed here: {extras.remedy(error.name or '')}."
        }
    except BaseException as error:
        return None, {"failed": raised(error).replace("It raised", "The cell itself raised", 1)}
    if name not in names:
        return None, {"failed": f"The cell defines no `{name}`; keep the name of the function."}
    value = names[name]
    try:
        return value, {"callable": callable(value), "value": serialization.encode(None if callable(value) else value)}
    except ValueError:  # too large, and no function
        return value, {"callable": False, "value": serialization.encode(None)}


def call_answer(function: Any, request: Message) -> Message:
    """What the function returns, or why it returns nothing."""
    case = serialization.unpack(request["case"])
    try:
        return {"value": serialization.encode(call(function, case))}
    except Failed as failure:
        said = str(failure)
        if "It raised NameError" in said:
            said += f" Of a notebook {ONLY_ITSELF}."
        return {"failed": said}
    except RecursionError:
        return {"failed": "It returned a list that contains itself."}
    except (ValueError, MemoryError) as error:
        return {"failed": f"Too much: {error}."}
    except BaseException as error:
        return {"failed": raised(error, function)}


# What the process takes from itself, once and for good.

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


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    os.environ["MPLBACKEND"] = "Agg"
    main(json.loads(sys.argv[1]))
