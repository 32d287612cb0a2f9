"""A process that compares answers, or runs a user's grader, under limits. The pool starts it, with options as JSON.

It may hang, grow or die: whoever started it holds the deadline. It imports no torch and sees few environment
variables. While it compares answers it can write to no file and start no process, and processor time, memory and open
files are limited. Not a sandbox: a user's grader can read files and open sockets; model output is only ever data here.
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
        judge = load(options["grade"], options["seconds"])
    except BaseException as error:
        send_reply(replies, {"failed": f"{type(error).__name__}: {error}"})
        return
    # counted from here: what a grader imports is its own affair, what an answer makes it allocate is not
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
    """Give up what a comparison does not need: files to write, new processes (not enforced on root), many open files.

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


def load(grade: str, seconds: float) -> Callable[[Message], Message]:
    """math-verify, warmed up, or the function that a shipped reward or `my.py:grade` names."""
    if grade == "math":
        from pmdkit.envs.verifier.symbolic import compare, compare_parts

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
    from pmdkit.envs.verifier.functions import OwnReward

    if grade == "reasoning-gym":
        from pmdkit.envs.math.reasoning import score_puzzle
        from pmdkit.extras import need

        need("reasoning_gym", "the reward reasoning-gym")  # imports it, which takes seconds, before anybody waits
        return OwnReward(score_puzzle, seconds)
    file, _, name = grade.rpartition(":")
    plugins.trust(grade)  # whoever started this process has checked it
    function = getattr(plugins.module_from_file(Path(file)), name, None)
    if not callable(function):
        raise ValueError(f"{file} has no function '{name}'; expected def {name}(response: str, gold: str) -> float")

    return OwnReward(function, seconds)


def address_space() -> int:
    """Bytes of this process, 0 where the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    except OSError:
        return 0


def peak() -> int:
    """The most bytes of address space so far, 0 where the system does not report it."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return 0
    return int(status.partition("VmPeak:")[2].split()[0]) * 1024


def allow_seconds(seconds: float) -> None:
    """CPU time for one answer: stops a runaway worker even where the parent itself is stopped."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    soft = int(usage.ru_utime + usage.ru_stime + 2 * seconds) + 2
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (soft if hard == resource.RLIM_INFINITY else min(soft, hard), hard))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
