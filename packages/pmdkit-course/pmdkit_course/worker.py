"""Run the code of one answer under limits and send back what it returns. It judges nothing.

sandbox.py starts it with a socket as standard input and output, where requests and replies are lines of JSON: no
pickle, because neither side trusts what the answer sends.
"""

import ast
import builtins
import contextlib
import importlib
import json
import math
import os
import resource
import sys
import time
import warnings
from pathlib import Path
from typing import Any, BinaryIO

from pmdkit import extras
from pmdkit_course import notebooks, serialization
from pmdkit_course.judging import LESSONS, ONLY_ITSELF, Failed, call, raised

FILE_SIZE = 64 * 2**20
"Largest file in bytes. Under bubblewrap, all of /tmp is that large."
OPEN_FILES = 256
Message = dict[str, Any]


def main() -> None:
    """Report that it is ready, load packages, confine itself, then answer requests until the socket closes."""
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # what an answer prints goes nowhere, and it reads no input
        os.dup2(nowhere, descriptor)
    warnings.simplefilter("ignore")
    send(replies, {"ready": True})
    request = json.loads(requests.readline())
    import_known(request)
    limit(request["memory_mb"], request["seconds"], request["processes"])
    send(replies, {"loaded": True})
    function: Any = None
    for message in map(json.loads, requests):
        if "run" in message:
            function, reply = load(request, message["run"])
        else:
            reply = call_answer(function, message["case"])
        send(replies, reply)


def send(replies: BinaryIO, message: Message) -> None:
    """Send one reply."""
    replies.write(json.dumps(message, allow_nan=False).encode() + b"\n")
    replies.flush()


def import_known(request: Message) -> None:
    """Load those of the lessons' packages that the code imports, before its clock runs and its memory counts.

    A torch build for accelerators takes gigabytes of address space before it is used.
    """
    serialization.unpack(request["sample"])
    for node in (node for source in (*request["imports"], request["cell"]) for node in notebooks.parsed(source)):
        names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for name in names:
            if name.partition(".")[0] in LESSONS and "__" not in name:  # a module __main__ is a program
                with contextlib.suppress(Exception, SystemExit):  # the answer's own import meets the same error
                    importlib.import_module(name)


def limit(memory_mb: int, seconds: float, processes: int) -> None:
    """Set hard limits for this process and its children, which an answer cannot raise.

    Args:
        memory_mb: address space beyond what it has now. Not where the system does not tell what it has, as macOS.
        seconds: time of an answer; twice as much processor time is allowed. The clock on the other side is the limit
            that counts, this one also works when the grader itself was killed.
        processes: how many there may be with this one, threads included; 0 for no limit.
    """
    processor = math.ceil(time.process_time() + 2 * seconds) + 2
    bounds = {
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_FSIZE: (FILE_SIZE, FILE_SIZE),
        resource.RLIMIT_NOFILE: (OPEN_FILES, OPEN_FILES),
        resource.RLIMIT_CPU: (processor, processor + 1),  # SIGXCPU says why; SIGKILL follows where that is ignored
    }
    if processes:
        bounds[resource.RLIMIT_NPROC] = (processes, processes)
    if sys.platform == "linux":
        memory = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() + memory_mb * 2**20
        bounds[resource.RLIMIT_AS] = (memory, memory)
        # should several processes together fill the memory, the kernel ends them and not the grader
        Path("/proc/self/oom_score_adj").write_text("1000")
    for which, wanted in bounds.items():
        hard = resource.getrlimit(which)[1]
        soft, highest = (value if hard == resource.RLIM_INFINITY else min(value, hard) for value in wanted)
        resource.setrlimit(which, (soft, highest))


def load(request: Message, name: str) -> tuple[Any, Message]:
    """Run the imports and the cell; returns the function it defines, and the reply."""
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    try:
        exec(compile("\n".join(request["imports"]), "<imports>", "exec"), names)
        exec(compile(request["cell"], "<cell>", "exec"), names)
    except SyntaxError as error:
        place = f" in line {error.lineno} of the cell" if error.filename == "<cell>" else ""
        return None, {"failed": f"The code does not parse{place}: {error.msg}."}
    except ModuleNotFoundError as error:
        return None, {
            "failed": f"It imports {error.name}, which is not installed here: {extras.advice(error.name or '')}."
        }
    except BaseException as error:
        return None, {"failed": raised(error).replace("It raised", "The cell itself raised", 1)}
    if name not in names:
        return None, {"failed": f"The cell defines no `{name}`; keep the name of the function."}
    value = names[name]
    try:
        return value, {"callable": callable(value), "value": serialization.encode(None if callable(value) else value)}
    except ValueError:  # too large, and not a function
        return value, {"callable": False, "value": serialization.encode(None)}


def call_answer(function: Any, case: Message) -> Message:
    """The reply to a call: what the function returns, or why it returns nothing."""
    try:
        return {"value": serialization.encode(call(function, serialization.unpack(case)))}
    except Failed as failure:
        says = str(failure)
        if "It raised NameError" in says:
            says += f" In a notebook, {ONLY_ITSELF}."
        return {"failed": says}
    except RecursionError:
        return {"failed": "It returned a list that contains itself."}
    except (ValueError, MemoryError) as error:
        return {"failed": f"Too much: {error}."}
    except BaseException as error:
        return {"failed": raised(error, function)}


if __name__ == "__main__":
    main()
