"""Run the code of one answer under limits and write down what it returns. It judges nothing.

sandbox.py starts it with a request on standard input and reads the replies, which are lines of JSON, from the file that
is its standard output: no pickle, because neither side trusts what the answer sends.
"""

import ast
import builtins
import contextlib
import importlib
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pmdkit import extras
from pmdkit_course import notebooks, serialization
from pmdkit_course.judging import LESSONS, ONLY_ITSELF, Failed, TooLong, call, raised, within

FILE_SIZE = 64 * 2**20
"Largest file in bytes. Under bubblewrap, all of /tmp is that large."
OPEN_FILES = 256
Message = dict[str, Any]


def main() -> None:
    """Load packages, confine itself, then reply once for the cell and once for each call."""
    request, replies = json.load(sys.stdin), os.fdopen(os.dup(1), "w")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):  # what an answer prints goes nowhere, and it reads no input
        os.dup2(nowhere, descriptor)
    warnings.simplefilter("ignore")
    cases = [serialization.decode(case) for case in request["cases"]]
    import_known(request)
    limit(request["memory_mb"], request["seconds"], request["processes"])

    def send(message: Message) -> None:
        print(json.dumps(message), file=replies, flush=True)

    send({"ready": True})
    try:
        with within(request["seconds"]):
            for reply in replies_to(request, cases):
                send(reply)
    except TooLong:
        send({"late": True})


def replies_to(request: Message, cases: Iterable[tuple[Any, ...]]) -> Iterator[Message]:
    """The reply for the cell, then one for each call of the function that it defines."""
    function, reply = load(request)
    yield reply
    for case in cases if reply.get("callable") else ():
        yield reply_of(partial(call, function, case))


def import_known(request: Message) -> None:
    """Load those of the lessons' packages that the code imports, before its clock runs and its memory counts.

    A torch build for accelerators takes gigabytes of address space before it is used.
    """
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
        memory_mb: address space beyond what the process has now; only on Linux, which tells how much that is.
        seconds: time of an answer; twice as much processor time is allowed, also to an answer that ignores its clock.
        processes: how many there may be with this one, threads included; 0 for no limit.
    """
    import resource  # here: a browser's Python has none, and page.py uses this file without limits

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


def load(request: Message) -> tuple[Any, Message]:
    """Run the imports and the cell of an answer; returns the function that the cell defines, and the reply."""
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": builtins}
    try:
        exec(compile("\n".join(request["imports"]), "<imports>", "exec"), names)
        exec(compile(request["cell"], "<cell>", "exec"), names)
    except TooLong:
        raise
    except SyntaxError as error:
        place = f" in line {error.lineno} of the cell" if error.filename == "<cell>" else ""
        return None, {"failed": f"The code does not parse{place}: {error.msg}."}
    except ModuleNotFoundError as error:
        advice = extras.advice(error.name or "")
        return None, {"failed": f"It imports {error.name}, which is not installed here: {advice}."}
    except BaseException as error:
        return None, {"failed": raised(error).replace("It raised", "The cell itself raised", 1)}
    if request["name"] not in names:
        return None, {"failed": f"The cell defines no `{request['name']}`; keep the name of the function."}
    value = names[request["name"]]
    return value, {"callable": True} if callable(value) else reply_of(lambda: value)


def reply_of(answer: Callable[[], Any]) -> Message:
    """The reply that holds what an answer returns, or says why it returns nothing."""
    try:
        return {"value": serialization.encode(answer())}
    except TooLong:
        raise
    except Failed as failure:
        says = str(failure)
        return {"failed": f"{says} In a notebook, {ONLY_ITSELF}." if "It raised NameError" in says else says}
    except RecursionError:
        return {"failed": "It returned a list that contains itself."}
    except (ValueError, MemoryError) as error:
        return {"failed": f"Too much: {error}."}
    except BaseException as error:
        return {"failed": raised(error)}


if __name__ == "__main__":
    main()
