"""The process that compares answers, or runs another judge, under limits: `python -P -m strict_answers.worker OPTIONS`.

It may hang, grow or die: its owner enforces the deadline. It sees few environment variables. A sealed worker can write
no files and start no processes, and processor time, memory and open files are limited. It is not a sandbox: a judge
that is not sealed can read files and open sockets; model output is only ever treated as data here.
"""

import ctypes
import importlib
import json
import math
import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from strict_answers.process import Message, encode
from strict_answers.verdict import describe

NEAR = 8 * 2**20
"A comparison this many bytes below the memory limit counts as over it: math-verify takes a lack of memory for unequal."
OPEN_FILES = 64
"Enough for the pipes, and for modules that sympy imports when it first needs them."
DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of <linux/prctl.h>


def main(options: Message) -> None:
    """Load the judge, report that it is ready, then answer requests until the pipe closes.

    Args:
        options: the fields of `process.Judge`, and `parent`, the id of the owner.
    """
    if sys.platform == "linux":  # elsewhere only a closed pipe shows that the owner died
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != options["parent"]:  # it ended before the line above
        os._exit(1)
    # What a judge prints cannot be taken for a reply, and math-verify logs whole answers with their control characters:
    # the pipes move away, and stdin, stdout and stderr become /dev/null.
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)

    def reply(message: Message | bytes) -> None:
        replies.write(message if isinstance(message, bytes) else encode(message))
        replies.flush()

    seconds, sealed = options["seconds"], options["sealed"]
    try:
        module, _, name = options["load"].partition(":")
        judge = getattr(importlib.import_module(module), name)(options["argument"], seconds)
    except BaseException as error:
        reply({"failed": f"{type(error).__name__}: {error}"})
        return
    # counted from here: what a judge imports is not limited, what an answer makes it allocate is
    limit = address_space("VmSize") + options["memory_mb"] * 2**20
    near = max(limit - NEAR, address_space("VmPeak")) if sealed else math.inf
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sealed:  # it needs no files, no new processes (not enforced for root) and few descriptors
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
    reply({"ready": True, "takes": getattr(judge, "takes", None)})
    for line in requests:
        allow_seconds(seconds)
        if sealed:  # SIGPROF ends the process even in a long multiplication, however busy the machine is
            signal.setitimer(signal.ITIMER_PROF, seconds)
        answered = answer(judge, line)
        signal.setitimer(signal.ITIMER_PROF, 0)
        reply({"fatal": "over its memory limit"} if address_space("VmPeak") > near else answered)


def answer(judge: Callable[[Message], Message], line: bytes) -> bytes:
    """The reply to a request, both as JSON. After it runs out of memory, the process may be in any state: it ends."""
    try:
        return encode(judge(json.loads(line)))
    except MemoryError:
        return encode({"fatal": "over its memory limit"})
    except (Exception, SystemExit) as error:
        return encode({"error": describe(error)})


def address_space(which: str) -> int:
    """The address space of this process in bytes, now (VmSize) or at most so far (VmPeak); 0 if it is not reported."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return int(status.partition(f"{which}:")[2].split()[0]) * 1024


def allow_seconds(seconds: float) -> None:
    """Limit the CPU time of one answer: this stops a runaway worker even if the parent itself is stopped."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(usage.ru_utime + usage.ru_stime + 2 * seconds) + 2
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
