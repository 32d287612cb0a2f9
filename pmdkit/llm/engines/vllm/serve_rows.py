"""Many requests at once: one per row, a number of lines to each server, and a watch for servers that fall silent.

What a request asks is serve_asking.py.
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, TypeVar

from pmdkit.llm.engines.protocol import EngineLost, Progress
from pmdkit.llm.engines.vllm.http import Json, Server

Read = TypeVar("Read")
PATH = "/v1/completions"
FOREVER = 86_400.0  # seconds: the watch decides how long a row may take
BEAT = 0.1  # seconds between looks at what has arrived
LEAVE = 5.0  # seconds for lines that were cut off to end


@dataclass
class Share:
    """One server's part of the rows.

    Attributes:
        rows: numbers of its rows, in the order in which they are asked for.
        seen: when it last showed that it works.
        tokens: that it has read and written in all its life, when last asked; None before.
    """

    server: Server
    rows: Sequence[int]
    seen: float = field(default_factory=monotonic)
    asked: float = field(default_factory=monotonic)
    left: int = 0
    tokens: float | None = None


def ask_all(
    shares: Sequence[tuple[Server, Sequence[int]]],
    body: Callable[[Server, int], Json],
    read: Callable[[Server, int, Json], tuple[Read, int]],
    *,
    lines: int,
    silence: float,
    progress: Progress | None = None,
) -> list[Read]:
    """What is read from the answers to all rows, in the order of their numbers, 0 to N - 1.

    Args:
        shares: servers, each with the rows that it answers.
        body: the request for a row.
        read: what an answer holds, and how many tokens were written; raises where it is nonsense.
        lines: requests to one server at the same time.
        silence: seconds without an answer or a token after which a server counts as hung.
        progress: told now and then; where it raises, everything is broken off.
    """
    parts = [Share(server, rows, left=len(rows)) for server, rows in shares if len(rows)]
    arrived: SimpleQueue[tuple[Share, int, Any]] = SimpleQueue()
    stop = threading.Event()
    threads = [
        threading.Thread(target=ask, args=(part, tickets, body, read, arrived, stop), daemon=True)
        for part in parts
        for tickets in [count()]
        for _ in range(min(lines, len(part.rows)))
    ]
    answers: dict[int, Read] = {}
    total, written, told = sum(part.left for part in parts), 0, monotonic()
    try:
        for thread in threads:
            thread.start()
        while len(answers) < total:
            try:
                part, row, answer = arrived.get(timeout=BEAT)
            except Empty:
                watch(parts, silence)
            else:
                if isinstance(answer, BaseException):
                    raise answer
                answers[row], tokens = answer
                written += tokens
                part.left -= 1
                part.seen = monotonic()
            if progress is not None and monotonic() - told > BEAT:
                progress(written, len(answers))
                told = monotonic()
        if progress is not None:
            progress(written, len(answers))
    finally:
        stop.set()
        if len(answers) < total:
            for part in parts:
                part.server.cut()
        until = monotonic() + LEAVE
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - monotonic()))
    return [answers[row] for row in range(total)]


def ask(
    part: Share,
    tickets: "count[int]",
    body: Callable[[Server, int], Json],
    read: Callable[[Server, int, Json], tuple[Any, int]],
    arrived: SimpleQueue[tuple[Share, int, Any]],
    stop: threading.Event,
) -> None:
    """One line to a server: rows that nobody has asked for yet, one after another."""
    with part.server.line(FOREVER) as line:
        while not stop.is_set() and (at := next(tickets)) < len(part.rows):
            row = part.rows[at]
            try:
                answer: Any = read(part.server, row, line.call("POST", PATH, body(part.server, row)))
            except BaseException as problem:
                answer = problem
            arrived.put((part, row, answer))
            if isinstance(answer, BaseException):
                return


def watch(parts: Sequence[Share], silence: float) -> None:
    """Ask servers that have not answered for a while whether they write at all; raise where one is hung."""
    pulse = min(10.0, silence / 4)
    for part in parts:
        now = monotonic()
        if part.left and now - max(part.seen, part.asked) > pulse:
            tokens = tokens_of(part.server, pulse)
            if tokens is not None and tokens != part.tokens:
                part.seen = monotonic()
            part.tokens = tokens if tokens is not None else part.tokens
            part.asked = monotonic()
        if part.left and monotonic() - part.seen > silence:
            raise EngineLost(
                f"the server at {part.server.url} is silent: {part.left} rows wait, and for {silence:g} s it has "
                "finished none and written no token (rollout.silence)"
            )


def tokens_of(server: Server, seconds: float) -> float | None:
    """Tokens that a server has read and written so far, by its metrics; None where it does not say."""
    try:
        lines = server.text("/metrics", seconds=seconds).splitlines()
    except EngineLost:
        return None
    names = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total")
    return sum((float(line.split()[-1]) for line in lines if line.startswith(names)), 0.0) if lines else None


def deal(servers: Sequence[Server], prompts: int, group: int) -> list[tuple[Server, list[int]]]:
    """Rows for each server: prompts in turn, all responses to one at the same server, which reads it once."""
    return [
        (server, [p * group + g for p in range(at, prompts, len(servers)) for g in range(group)])
        for at, server in enumerate(servers)
    ]
