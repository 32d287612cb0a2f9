"""Run one learner's code under limits and send back what it returned. It judges nothing.

sandbox.py starts it with its options as JSON; pipes and messages are the same as for the verifier's workers. It loads
the course's packages and, on Linux, runs no answer itself: for each it forks a process, which confines itself
(confinement.py), runs the code, and serves the calls. So each answer starts from the same state as the first, no limit
has to be undone for the next, and packages are loaded once.
"""

import ast
import builtins
import contextlib
import json
import os
import sys
import warnings
from typing import Any

from pmdkit import extras
from pmdkit.processes import Message, claim_pipes, control, die_with_parent, receive_request, send_reply
from pmdkit_course import confinement, notebooks, serialization
from pmdkit_course.judging import ONLY_ITSELF, Failed, call, raised

DUMPABLE = 4
"PR_SET_DUMPABLE: at 0, no process of the same account can access this one through /proc."


def main(options: Message) -> None:
    """Report that it is ready, then serve one answer after another until the pipe closes."""
    requests, replies = claim_pipes()
    if not options["isolated"]:  # otherwise isolation.py has done so
        die_with_parent(options["parent"])
    control(DUMPABLE, 0)
    warnings.simplefilter("ignore")
    send_reply(replies, {"ready": True})
    while (request := receive_request(requests)) is not None:
        import_known(request)
        if sys.platform != "linux":  # macOS libraries do not survive a fork: one answer, then the grader restarts it
            serve(options, request, requests, replies)
            return
        own = os.getpid()
        child = os.fork()
        if child == 0:
            try:
                if not options["isolated"]:
                    die_with_parent(own)
                serve(options, request, requests, replies)
                os._exit(0)
            finally:  # for example, if the answer closed the pipes
                os._exit(1)
        send_reply(replies, {"ended": ended(child)})


def ended(child: int) -> int:
    """Wait for a process; returns its exit code. As process 1 of a namespace, this one also reaps orphans."""
    while True:
        found, status = os.wait()
        if found == child:
            return os.waitstatus_to_exitcode(status)


def serve(options: Message, request: Message, requests: int, replies: int) -> None:
    """The life of an answer's process: it confines itself before any of the learner's code runs."""
    memory = confinement.address_space()
    confinement.limit(memory and memory + request["memory_mb"] * 2**20, request["seconds"], options["isolated"])
    kept = confinement.confine(options["folder"], options["isolated"])
    send_reply(replies, {"kept": kept})
    function: Any = None
    while (message := receive_request(requests)) is not None:
        if "case" in message:
            reply = call_answer(function, message)
        elif "run" in message:
            function, reply = load(request, message["run"])
        else:
            return
        send_reply(replies, reply)


def import_known(request: Message) -> None:
    """Load those of the course's own packages that the code imports, before any clock runs and any memory counts.

    A torch build for accelerators takes gigabytes of address space before it is used.
    """
    serialization.unpack(request["sample"])
    sources = [*request["imports"], request["cell"]]
    for node in (node for source in sources for node in notebooks.parsed(source)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        module = node.module or "" if isinstance(node, ast.ImportFrom) else node.names[0].name
        if module.partition(".")[0] in extras.LESSONS and "__" not in module:  # a module __main__ is a program
            with contextlib.suppress(Exception, SystemExit):  # the learner's own import meets the same error
                exec(compile(ast.Module([node], []), "<known>", "exec"), {})


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


def call_answer(function: Any, request: Message) -> Message:
    """The reply to a call: what the function returns, or why it returns nothing."""
    case = serialization.unpack(request["case"])
    try:
        return {"value": serialization.encode(call(function, case))}
    except Failed as failure:
        said = str(failure)
        if "It raised NameError" in said:
            said += f" In a notebook, {ONLY_ITSELF}."
        return {"failed": said}
    except RecursionError:
        return {"failed": "It returned a list that contains itself."}
    except (ValueError, MemoryError) as error:
        return {"failed": f"Too much: {error}."}
    except BaseException as error:
        return {"failed": raised(error, function)}


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    os.environ["MPLBACKEND"] = "Agg"
    main(json.loads(sys.argv[1]))
