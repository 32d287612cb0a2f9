"""Try out untrusted chat templates and tokenizers in a separate process with limits on time and memory.

A chat template is a program: it may loop forever or write gigabytes, and Jinja's sandbox prevents neither. A
tokenizer holds patterns that may take years to match. The process runs this file as a module, and imports no torch.
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
"CPU time. The longest templates on the hub need a few milliseconds, the largest tokenizers a second."
PATIENCE = 20
"Wall-clock seconds allowed per second of CPU time: a machine may be busy."
MEMORY_MB = 2048
"On top of what Python and its imports take. The largest tokenizers take 500 MiB."
LONGEST = 1_000_000
"Characters of a rendered conversation; the longest templates put a few thousand around a message."
LARGEST = 256 * 2**20
"Bytes of a tokenizer.json. The largest on the hub are 35 MB."
PROBES = ("a" * 400, " " * 400, "1" * 400, "(" * 400, "aA1 .\n" * 60, "\u4e1c\u00e9\U0001f600" * 60)
"Encoded besides the wording around a problem: texts that are hardest for patterns that backtrack."


def render_chat(tokenizer: Any, messages: Sequence[dict[str, str]], thinking: bool | None = None) -> str:
    """The conversation as rendered by the tokenizer's chat template, with the generation prompt.

    `thinking` is passed to the template as `enable_thinking`; None leaves it out.

    Raises:
        UsageError: the template does not finish in time, needs too much memory, writes too much, or fails.
    """
    try:
        template = tokenizer.get_chat_template()
    except ValueError as problem:  # there are several, and none of them is the default
        raise UsageError(f"the tokenizer has several chat templates ({problem}); name one 'default'") from None
    if not isinstance(template, str):
        raise UsageError(f"the chat template of the tokenizer is {short(template)}; expected text")
    names = plain_tokens(tokenizer) | ({} if thinking is None else {"enable_thinking": thinking})
    request = {"template": template, "messages": list(messages), "tokens": names}
    reply = ask(request, "the chat template of the tokenizer")
    return str(reply["text"])


def plain_tokens(tokenizer: Any) -> dict[str, Any]:
    """The special tokens that a template may use: bos_token and the like."""
    return {
        name: [str(one) for one in token] if isinstance(token, list | tuple) else str(token)
        for name, token in tokenizer.special_tokens_map.items()
    }


def check_tokenizer(folder: Path, texts: Sequence[str]) -> None:
    """Load a folder's tokenizer and encode some texts with it in another process, before it is loaded here.

    Raises:
        UsageError: it is not a tokenizer, or takes too much time or memory.
    """
    path = folder / "tokenizer.json"
    if path.exists():
        advice = "copy the tokenizer again"
        with foreign.open_file(path, LARGEST, advice):
            ask({"tokenizer": str(path.absolute()), "texts": [*texts, *PROBES]}, str(path))


def ask(request: Message, what: str) -> Message:
    """The reply of a new process to one request; its error messages hold untrusted text and are escaped."""
    try:
        worker = WorkerProcess("pmdkit.llm.chat_template", {})
    except OSError as problem:
        raise EnvironmentLacks(f"a process that tries out {what} cannot be started: {problem}") from problem
    try:
        worker.send(request, time.monotonic() + STARTUP)
        reply = worker.receive_by(time.monotonic() + STARTUP + PATIENCE * SECONDS)
    except WorkerFailed as problem:
        code = worker.wait(STARTUP)
        if code is not None and -code in (signal.SIGKILL, signal.SIGTERM):  # killed from outside, or out of memory
            raise ComponentDied(f"the process that tries out {what} {exit_reason(code)}; run again") from problem
        if code != -signal.SIGXCPU:
            raise UsageError(f"{what} crashes the process that tries it out ({problem}); take another model") from None
        reply = None
    finally:
        worker.kill()
    if reply is None:
        raise UsageError(f"{what} does not finish within {SECONDS} s of processor time; take another model, or fix it")
    if "failed" in reply:
        raise UsageError(f"{what} fails: {printable(str(reply['failed']))[:300]}; take another model, or fix it")
    return reply


# The child process.


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
    """Limit time and memory from here on, on top of what the imports took."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    seconds = int(used.ru_utime + used.ru_stime) + 1 + SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize() if linux() else 0
    if held:
        resource.setrlimit(resource.RLIMIT_AS, (held + MEMORY_MB * 2**20,) * 2)


def linux() -> bool:
    """Whether the system reports how much memory a process holds."""
    return Path("/proc/self/statm").exists()


def render(request: Message) -> Message:
    """The text of a conversation, rendered in transformers' own Jinja environment: its filters, names and sandbox."""
    from transformers.utils.chat_template_utils import render_jinja_template

    limit()
    rendered: Any = render_jinja_template(
        conversations=[request["messages"]],
        chat_template=request["template"],
        add_generation_prompt=True,
        **request["tokens"],
    )
    text = str(rendered[0][0])  # of the only conversation; besides the texts it returns where answers are in them
    if len(text) > LONGEST:
        return {"failed": f"it writes {len(text):,} characters around a message; expected at most {LONGEST:,}"}
    return {"text": text}


def encode(request: Message) -> Message:
    """The number of tokens in each text."""
    from tokenizers import Tokenizer

    limit()
    try:
        tokenizer = Tokenizer.from_file(request["tokenizer"])
    except Exception as problem:  # tokenizers raises Exception itself
        return {"failed": f"it does not load: {str(problem)[:200]}"}
    return {"tokens": [len(tokenizer.encode(text).ids) for text in request["texts"]]}


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
