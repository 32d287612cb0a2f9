"""A process that runs one learner's code under limits and hands back what it returned. It judges nothing.

Started by sandbox.py with its options as JSON; the pipes and their messages are those of the verifier's workers.
"""

import ast
import builtins
import contextlib
import json
import os
import resource
import sys
import warnings
from typing import Any

from pmdkit.envs.verifier.worker import address_space, allow_seconds
from pmdkit.learn.confine import confine
from pmdkit.learn.extras import remedy
from pmdkit.learn.judging import ONLY_ITSELF, Failed, call, raised
from pmdkit.learn.serialization import encode, unpack
from pmdkit.learn.submission import parsed
from pmdkit.processes import claim_pipes, die_with_parent, receive_request, send_reply

Message = dict[str, Any]
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
    unpack(request["sample"])
    sources = [*request["imports"], request["cell"]]
    for node in (node for source in sources for node in parsed(source)):
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
        return None, {"failed": f"It imports {error.name}, which is not installed here: {remedy(error.name or '')}."}
    except BaseException as error:
        return None, {"failed": raised(error).replace("It raised", "The cell itself raised", 1)}
    if name not in names:
        return None, {"failed": f"The cell defines no `{name}`; keep the name of the function."}
    return names[name], {"callable": callable(names[name]), "value": quietly(names[name])}


def quietly(value: Any) -> Message:
    """A name's value for the case that it is no function."""
    try:
        return encode(None if callable(value) else value)
    except ValueError:
        return encode(None)


def call_answer(function: Any, request: Message) -> Message:
    """What the function returns, or why it returns nothing."""
    case = unpack(request["case"])
    try:
        return {"value": encode(call(function, case))}
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


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    os.environ["MPLBACKEND"] = "Agg"
    main(json.loads(sys.argv[1]))
