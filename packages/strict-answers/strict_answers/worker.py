"""A worker process that compares answers or runs a user's grader, under limits; the pool starts it.

It gets its options as JSON. It may hang, grow or die: its owner enforces the deadline. It imports no torch and sees few
environment variables. While it compares answers it can write no files and start no processes, and processor time,
memory and open files are limited. It is not a sandbox: a user's grader can read files and open sockets; model output is
only ever treated as data here.
"""

import json
import math
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from pmdkit.processes import Message, claim_pipes, die_with_parent, receive_request, send_reply

NEAR = 8 * 2**20
"A comparison this many bytes below the memory limit counts as over it: math-verify takes a lack of memory for unequal."
OPEN_FILES = 64
"Enough for the pipes, and for modules that sympy imports when it first needs them."
WARM = ((r"\frac{1}{2}", "0.5"), (r"(2,\sqrt{3}]", r"\{1,x\}"), (r"((x^2+\sin(2))) \cdot 1", r"\pi"), ("x<1", "y=2"))
"Spans and golds that make the parser build its tables and sympy import its parts before the first request."


def main(options: Message) -> None:
    """Load the grader, report that it is ready, then answer requests until the pipe closes."""
    die_with_parent(options["parent"])
    requests, replies = claim_pipes()
    try:
        judge = load(options["grade"], options["seconds"])
    except BaseException as error:
        send_reply(replies, {"failed": f"{type(error).__name__}: {error}"})
        return
    # counted from here: what a grader imports is not limited, what an answer makes it allocate is
    limit = address_space() + options["memory_mb"] * 2**20
    near = max(limit - NEAR, peak()) if options["grade"] == "math" else math.inf
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if options["grade"] == "math":
        drop_privileges()
    send_reply(replies, {"ready": True, "takes": getattr(judge, "takes", "pair")})
    while (request := receive_request(requests)) is not None:
        allow_seconds(options["seconds"])
        if options["grade"] == "math":
            signal.setitimer(signal.ITIMER_PROF, options["seconds"])
        reply = answer(judge, request)
        signal.setitimer(signal.ITIMER_PROF, 0)
        send_reply(replies, {"fatal": "over its memory limit"} if peak() > near else reply)


def drop_privileges() -> None:
    """Give up what a comparison does not need: writing files, new processes (not enforced for root), many open files.

    Exceeding the processor time ends the process by SIGPROF, even in the middle of a long multiplication: how long an
    answer may take does not depend on what else the machine does.
    """
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, OPEN_FILES))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)


def answer(judge: Callable[[Message], Message], request: Message) -> Message:
    """One reply. After it runs out of memory, the process is not used again, since it may be in any state."""
    try:
        return judge(request)
    except MemoryError:
        return {"fatal": "over its memory limit"}
    except (Exception, SystemExit) as error:
        return {"error": f"{type(error).__name__}: {str(error)[:200]}"}


def load(grade: str, seconds: float) -> Callable[[Message], Message]:
    """The judge: math-verify, warmed up, a shipped reward, or the function that `my.py:grade` names."""
    if grade == "math":
        from strict_answers.symbolic import compare, compare_parts

        for span, gold in WARM:
            compare(span, gold)
        for span, right in (("0.5", True), ("0.25", False)):
            if compare(span, r"\frac{1}{2}")[0] is not right:
                raise ValueError(f"{span} is {'not ' * right}1/2: math-verify is broken")

        def judge(request: Message) -> Message:
            if "span" in request:
                correct, reason = compare(request["span"], request["gold"])
            else:
                correct, reason = compare_parts(request["members"], request["gold"])
            return {"correct": correct, "reason": reason}

        return judge
    from pmdkit import plugins
    from strict_answers.functions import OwnReward

    if grade == "reasoning-gym":
        from pmdkit.envs.math.reasoning import score_puzzle
        from pmdkit.extras import need

        need("reasoning_gym", "the reward reasoning-gym")  # imports it now, since that takes seconds
        return OwnReward(score_puzzle, seconds)
    file, _, name = grade.rpartition(":")
    plugins.trust(grade)  # the process that started this one has checked it
    function = getattr(plugins.module_from_file(Path(file)), name, None)
    if not callable(function):
        raise ValueError(f"{file} has no function '{name}'; expected def {name}(response: str, gold: str) -> float")

    return OwnReward(function, seconds)


def address_space() -> int:
    """The address space of this process in bytes, 0 if the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def peak() -> int:
    """The largest address space so far in bytes, 0 if the system does not report it."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return int(status.partition("VmPeak:")[2].split()[0]) * 1024


def allow_seconds(seconds: float) -> None:
    """Limit the CPU time of one answer: this stops a runaway worker even if the parent itself is stopped."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(usage.ru_utime + usage.ru_stime + 2 * seconds) + 2
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
