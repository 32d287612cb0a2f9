"""A process that compares answers, or runs a user's grader, under limits. The pool starts it, with options as JSON.

It may hang, grow or die: whoever started it holds the deadline. It imports no torch and sees few environment
variables. While it compares answers it can write to no file and start no process, and processor time, memory and open
files are limited. Not a sandbox: a user's grader can read files and open sockets; model output is only ever data here.
"""

import ctypes
import json
import math
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pmdkit.envs.math_answers.frames import HEAD, pack

Message = dict[str, Any]
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
NEAR = 8 * 2**20
"Bytes below the limit of memory at which a comparison has met it: math-verify takes a lack of memory for unequal."
OPEN_FILES = 64
"The pipes, and modules that sympy imports when it first needs them."
WARM = ((r"\frac{1}{2}", "0.5"), (r"(2,\sqrt{3}]", r"\{1,x\}"), (r"((x^2+\sin(2))) \cdot 1", r"\pi"), ("x<1", "y=2"))
"Spans and golds that make the parser build its tables and sympy import its parts, before anybody waits."


def main(options: Message) -> None:
    """Load the grader, say so, then answer requests until the pipe closes."""
    die_with_parent(options["parent"])
    requests, replies = claim_pipes()
    try:
        judge = load(options["grade"])
    except BaseException as error:
        send(replies, {"failed": f"{type(error).__name__}: {error}"})
        return
    # counted from here: what a grader imports is its own affair, what an answer makes it allocate is not
    limit = address_space() + options["memory_mb"] * 2**20
    near = max(limit - NEAR, peak()) if options["grade"] == "math" else math.inf
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if options["grade"] == "math":
        take_away()
    send(replies, {"ready": True})
    while (request := receive(requests)) is not None:
        allow_seconds(options["seconds"])
        if options["grade"] == "math":
            signal.setitimer(signal.ITIMER_PROF, options["seconds"])
        reply = answer(judge, request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        send(replies, {"fatal": "over its memory limit"} if peak() > near else reply)


def take_away() -> None:
    """What a comparison has no need of: files to write, processes to start (not enforced on root), many open files.

    Processor time over the limit ends the process by SIGPROF, also in the middle of a long multiplication: how long an
    answer may take does not depend on what else the machine does.
    """
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)


def answer(judge: Callable[[Message], Message], request: Message) -> Message:
    """One reply. After a lack of memory the process is not used again: it may be in any state."""
    try:
        return judge(request)
    except MemoryError:
        return {"fatal": "over its memory limit"}
    except (Exception, SystemExit) as error:
        return {"error": f"{type(error).__name__}: {str(error)[:200]}"}


def load(grade: str) -> Callable[[Message], Message]:
    """math-verify, warmed up, or the function that `my.py:grade` names."""
    if grade == "math":
        from pmdkit.envs.math_answers.symbolic import compare

        for span, gold in WARM:
            compare(span, gold)
        for span, right in (("0.5", True), ("0.25", False)):
            if compare(span, r"\frac{1}{2}")[0] is not right:
                raise ValueError(f"{span} is {'not ' * right}1/2: math-verify is broken")

        def judge(request: Message) -> Message:
            correct, reason = compare(request["span"], request["gold"])
            return {"correct": correct, "reason": reason}

        return judge
    from pmdkit.from_path import module_from_file

    file, _, name = grade.rpartition(":")
    function = getattr(module_from_file(Path(file)), name, None)
    if not callable(function):
        raise ValueError(f"{file} has no function '{name}'; expected def {name}(response: str, gold: str) -> float")

    def judge_own(request: Message) -> Message:
        value = function(request["response"], request["gold"])
        try:
            number = float(value)
        except (TypeError, ValueError):
            return {"error": f"the grader returned {type(value).__name__}; expected a number from 0 to 1"}
        if not (math.isfinite(number) and 0 <= number <= 1):
            return {"error": f"the grader returned {number}; expected a number from 0 to 1"}
        return {"value": number}

    return judge_own


def die_with_parent(parent: int) -> None:
    """SIGKILL when the parent goes; elsewhere than on Linux only the closed pipe tells."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it went before the line above
        os._exit(1)


def claim_pipes() -> tuple[int, int]:
    """Descriptors of requests and replies; what a grader prints or reads goes nowhere."""
    requests, replies = os.dup(0), os.dup(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):  # 2: math-verify logs whole answers, with their control characters
        os.dup2(nowhere, descriptor)
    return requests, replies


def address_space() -> int:
    """Bytes of this process, 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def peak() -> int:
    """The most bytes of address space so far, 0 where the system does not tell."""
    try:
        told = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return int(told.partition("VmPeak:")[2].split()[0]) * 1024


def allow_seconds(seconds: float) -> None:
    """CPU time for one answer: stops a runaway worker even where the parent itself is stopped."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(usage.ru_utime + usage.ru_stime + 2 * seconds) + 2
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


def receive(descriptor: int) -> Message | None:
    """The next request; None when the parent has closed the pipe."""
    head = exactly(descriptor, HEAD.size)
    body = exactly(descriptor, HEAD.unpack(head)[0]) if head else None
    return None if body is None else json.loads(body)


def exactly(descriptor: int, count: int) -> bytes | None:
    """`count` bytes, or None at the end of the pipe."""
    parts = bytearray()
    while len(parts) < count:
        part = os.read(descriptor, count - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)


def send(descriptor: int, message: Message) -> None:
    """A whole message."""
    data = memoryview(pack(message))
    while data:
        data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
