"""Chat templates and tokenizers of others, tried out in a process of their own with limits on time and memory.

A chat template is a program: it may loop without end or write gigabytes, and the sandbox of Jinja stops neither. A
tokenizer holds patterns whose matching may take years. The process imports no torch; as a module it is that process.
"""

import json
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pmdkit import foreign, processes
from pmdkit.errors import ComponentDied, EnvironmentLacks, UsageError, printable, short
from pmdkit.processes import STARTUP, Message, WorkerFailed, WorkerProcess, exit_reason

SECONDS = 3
"Of processor time. The longest templates on the hub need some milliseconds, the largest tokenizers a second."
PATIENCE = 20
"Seconds by the clock per second of processor time: a machine may be crowded."
MEMORY_MB = 2048
"Beyond what Python and its imports take. The largest tokenizers take 500 MiB."
LONGEST = 1_000_000
"Characters of a rendered conversation; the longest wordings around a message have some thousands."
LARGEST = 256 * 2**20
"Bytes of a tokenizer.json. The largest on the hub have 35 MB."
PROBES = ("a" * 400, " " * 400, "1" * 400, "(" * 400, "aA1 .\n" * 60, "\u4e1c\u00e9\U0001f600" * 60)
"Beside the wording around a problem: what patterns that match by trying have the most trouble with."


def render_chat(tokenizer: Any, messages: Sequence[dict[str, str]], thinking: bool | None = None) -> str:
    """The conversation as the tokenizer's chat template writes it, with the beginning of an answer.

    `thinking` is what a template may read as `enable_thinking`; None leaves it out.

    Raises:
        UsageError: the template does not end in time, needs too much memory, writes too much, or fails.
    """
    try:
        template = tokenizer.get_chat_template()
    except ValueError as problem:  # several, and none of them is the default
        raise UsageError(f"the chat template of the tokenizer cannot be chosen ({problem}); name one default") from None
    if not isinstance(template, str):
        raise UsageError(f"the chat template of the tokenizer is {short(template)}; expected text")
    names = plain_tokens(tokenizer) | ({} if thinking is None else {"enable_thinking": thinking})
    request = {"template": template, "messages": list(messages), "tokens": names}
    reply = ask(request, "the chat template of the tokenizer")
    return str(reply["text"])


def plain_tokens(tokenizer: Any) -> dict[str, Any]:
    """What a template may name: bos_token and the like."""
    return {
        name: [str(one) for one in token] if isinstance(token, list | tuple) else str(token)
        for name, token in tokenizer.special_tokens_map.items()
    }


def check_tokenizer(folder: Path, texts: Sequence[str]) -> None:
    """Load the tokenizer of a folder and encode some texts with it, elsewhere, before it is loaded here.

    Raises:
        UsageError: it is none, or that takes too much time or memory.
    """
    path = folder / "tokenizer.json"
    if path.exists():
        advice = "copy the tokenizer again"
        with foreign.open_file(path, LARGEST, advice):
            ask({"tokenizer": str(path.absolute()), "texts": [*texts, *PROBES]}, str(path))


def ask(request: Message, what: str) -> Message:
    """The reply to one request of a new process; its reasons are of foreign text, and are shown as such."""
    try:
        worker = WorkerProcess("pmdkit.llm.chat_template", {})
    except OSError as problem:
        raise EnvironmentLacks(f"a process that tries out {what} cannot be started: {problem}") from problem
    try:
        worker.send(request, time.monotonic() + STARTUP)
        reply = worker.receive_by(time.monotonic() + STARTUP + PATIENCE * SECONDS)
    except WorkerFailed as problem:
        code = worker.wait(STARTUP)
        if code is not None and -code in (signal.SIGKILL, signal.SIGTERM):  # by somebody else, or for lack of memory
            raise ComponentDied(f"the process that tries out {what} {exit_reason(code)}; run again") from problem
        if code != -signal.SIGXCPU:
            raise UsageError(f"{what} breaks the process that tries it out ({problem}); take another model") from None
        reply = None
    finally:
        worker.kill()
    if reply is None:
        raise UsageError(f"{what} does not end within {SECONDS} s of processor time; take another model, or mend it")
    if "failed" in reply:
        raise UsageError(f"{what} fails: {printable(str(reply['failed']))[:300]}; take another model, or mend it")
    return reply


# The process.


def main(options: Message) -> None:
    """Answer one request under limits."""
    processes.die_with_parent(options["parent"])
    requests, replies = processes.claim_pipes()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    request = processes.receive_request(requests)
    if request is None:
        return
    work = render if "template" in request else encode
    try:
        processes.send_reply(replies, work(request))
    except MemoryError:
        processes.send_reply(replies, {"failed": f"it needs more than {MEMORY_MB} MiB"})
    except (Exception, SystemExit) as problem:
        processes.send_reply(replies, {"failed": f"{type(problem).__name__}: {str(problem)[:200]}"})


def limit() -> None:
    """From here on, after what is imported."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + 1 + SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if linux() else 0
    if held:
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY_MB * 2**20,) * 2)


def linux() -> bool:
    """Whether the system says how much a process holds."""
    return Path("/proc/self/statm").exists()


def render(request: Message) -> Message:
    """The text of a conversation. transformers' own environment of Jinja: its filters, its names, its sandbox."""
    from transformers.utils.chat_template_utils import render_jinja_template

    limit()
    rendered: Any = render_jinja_template(
        conversations=[request["messages"]],
        chat_template=request["template"],
        add_generation_prompt=True,
        **request["tokens"],
    )
    text = str(rendered[0][0])  # of the only conversation; beside the texts it returns where answers stand in them
    if len(text) > LONGEST:
        return {"failed": f"it writes {len(text):,} characters around a message; expected at most {LONGEST:,}"}
    return {"text": text}


def encode(request: Message) -> Message:
    """How many tokens some texts have."""
    from tokenizers import Tokenizer

    limit()
    try:
        tokenizer = Tokenizer.from_file(request["tokenizer"])
    except Exception as problem:  # tokenizers raises Exception itself
        return {"failed": f"it does not load: {str(problem)[:200]}"}
    return {"tokens": [len(tokenizer.encode(text).ids) for text in request["texts"]]}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
