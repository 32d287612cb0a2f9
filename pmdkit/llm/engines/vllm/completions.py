"""Responses and scores from servers by /v1/completions: one request per row, and the checks of its answer.

All supported versions have this route. The route for tokens is disabled by default and no faster.
"""

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from queue import Empty, SimpleQueue
from time import monotonic
from typing import Any, TypeVar

from pmdkit.llm.engines.base import EngineLost, Progress, Sampling, Tokens
from pmdkit.llm.engines.vllm.http import Json, Server

Read = TypeVar("Read")
PATH = "/v1/completions"
NO_DEADLINE = 86_400.0  # seconds: `check_silence` decides how long a row may take
POLL = 0.1  # seconds between checks for answers
JOIN_SECONDS = 5.0  # seconds for aborted connections to end
UNDEFINED = -9999.0  # what vLLM writes for a log-probability that is NaN or -inf, which JSON cannot hold
MAX_SEED = 2**63 - 1  # vLLM's are signed

# everything that shapes the distribution is set: a server's own defaults may come from its model
DEFAULTS: Json = {"n": 1, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "stream": False}
DEFAULTS |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}


@dataclass
class ServerShare:
    """One server's part of the rows.

    Attributes:
        rows: numbers of its rows, in the order in which they are requested.
        seen: when it last showed that it works.
        tokens: total that it had read and written when last asked; None before.
    """

    server: Server
    rows: Sequence[int]
    seen: float = field(default_factory=monotonic)
    asked: float = field(default_factory=monotonic)
    left: int = 0
    tokens: float | None = None


def complete_all(
    shares: Sequence[tuple[Server, Sequence[int]]],
    body: Callable[[Server, int], Json],
    read: Callable[[Server, int, Json], tuple[Read, int]],
    *,
    connections: int,
    silence: float,
    progress: Progress | None = None,
    finished: Callable[[int, Read], None] | None = None,
) -> list[Read]:
    """Request all rows; return what was read from their answers, in the order of their numbers, 0 to N - 1.

    Args:
        shares: servers, each with the rows that it answers.
        body: makes the request for a row.
        read: returns the content of an answer and how many tokens were written; raises if the answer is invalid.
        connections: requests to one server at the same time.
        silence: seconds without an answer or a token after which a server counts as hung.
        progress: called now and then; if it raises, all requests are aborted.
        finished: called with a row and what was read from its answer, in this thread.
    """
    parts = [ServerShare(server, rows, left=len(rows)) for server, rows in shares if len(rows)]
    arrived: SimpleQueue[tuple[ServerShare, int, Any]] = SimpleQueue()
    stop = threading.Event()
    threads = [
        threading.Thread(target=complete_rows, args=(part, tickets, body, read, arrived, stop), daemon=True)
        for part in parts
        for tickets in [count()]
        for _ in range(min(connections, len(part.rows)))
    ]
    answers: dict[int, Read] = {}
    total, written, reported = sum(part.left for part in parts), 0, monotonic()
    try:
        for thread in threads:
            thread.start()
        while len(answers) < total:
            try:
                part, row, answer = arrived.get(timeout=POLL)
            except Empty:
                check_silence(parts, silence)
            else:
                if isinstance(answer, BaseException):
                    raise answer
                answers[row], tokens = answer
                if finished is not None:
                    finished(row, answers[row])
                written += tokens
                part.left -= 1
                part.seen = monotonic()
            if progress is not None and monotonic() - reported > POLL:
                progress(written, len(answers))
                reported = monotonic()
        if progress is not None:
            progress(written, len(answers))
    finally:
        stop.set()
        if len(answers) < total:
            for part in parts:
                part.server.cut()
        until = monotonic() + JOIN_SECONDS
        for thread in threads:
            if thread.ident is not None:
                thread.join(max(0.0, until - monotonic()))
    return [answers[row] for row in range(total)]


def complete_rows(
    part: ServerShare,
    tickets: "count[int]",
    body: Callable[[Server, int], Json],
    read: Callable[[Server, int, Json], tuple[Any, int]],
    arrived: SimpleQueue[tuple[ServerShare, int, Any]],
    stop: threading.Event,
) -> None:
    """One connection to a server: request rows that no other connection has taken, one after another."""
    with part.server.connect(NO_DEADLINE) as connection:
        while not stop.is_set() and (at := next(tickets)) < len(part.rows):
            row = part.rows[at]
            try:
                answer: Any = read(part.server, row, connection.call("POST", PATH, body(part.server, row)))
            except BaseException as problem:
                answer = problem
            arrived.put((part, row, answer))
            if isinstance(answer, BaseException):
                return


def check_silence(parts: Sequence[ServerShare], silence: float) -> None:
    """Ask servers that have not answered for a while whether they make progress; raise if one is hung."""
    pulse = min(10.0, silence / 4)
    for part in parts:
        now = monotonic()
        if part.left and now - max(part.seen, part.asked) > pulse:
            tokens = tokens_processed(part.server, pulse)
            if tokens is not None and tokens != part.tokens:
                part.seen = monotonic()
            part.tokens = tokens if tokens is not None else part.tokens
            part.asked = monotonic()
        if part.left and monotonic() - part.seen > silence:
            raise EngineLost(
                f"the server at {part.server.url} is silent: {part.left} rows wait, and for {silence:g} s it has "
                "finished none and written no token (rollout.silence)"
            )


def tokens_processed(server: Server, seconds: float) -> float | None:
    """Tokens that a server has read and written so far, by its metrics; None if it does not say."""
    try:
        lines = server.text("/metrics", seconds=seconds).splitlines()
    except EngineLost:
        return None
    names = ("vllm:generation_tokens_total", "vllm:prompt_tokens_total")
    return sum((float(line.split()[-1]) for line in lines if line.startswith(names)), 0.0) if lines else None


def deal_rows(servers: Sequence[Server], prompts: int, group: int) -> list[tuple[Server, list[int]]]:
    """Rows for each server: prompts are dealt in turn, with all rows of a prompt at one server, which reads it once."""
    return [
        (server, [p * group + g for p in range(at, prompts, len(servers)) for g in range(group)])
        for at, server in enumerate(servers)
    ]


def response_body(
    prompts: Sequence[Tokens], group: int, seeds: Sequence[int], sampling: Sampling, ends: Sequence[int], call: str
) -> Callable[[Server, int], Json]:
    """Makes the request for the response of a row, with an id that no other row of any call has."""

    def body(server: Server, row: int) -> Json:
        return {
            **DEFAULTS,
            "model": server.model,
            "request_id": f"{call}-{row}",
            "prompt": list(prompts[row // group]),
            "seed": int(seeds[row]) & MAX_SEED,
            "max_tokens": sampling.width,
            "temperature": 0.0 if sampling.greedy else sampling.temperature,
            "top_p": 1.0 if sampling.greedy else sampling.top_p,
            "logprobs": 0,
            "stop_token_ids": list(ends),
            "ignore_eos": True,  # the model's own is among `ends`, or does not apply
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }

    return body


@dataclass(frozen=True)
class FlatLogprobs:
    """Tokens and their log-probabilities, with the attribute names of vLLM's flat ones."""

    token_ids: list[int]
    logprobs: list[float]

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True)
class CompletionRow:
    """A response with the attribute names of vLLM's own outputs, as `outputs.to_responses` reads it."""

    token_ids: list[int]
    logprobs: FlatLogprobs
    finish_reason: str | None


def response_reader(vocabulary: int, call: str) -> Callable[[Server, int, Json], tuple[CompletionRow, int]]:
    """Reads an answer: the row, and its number of tokens. `outputs.to_responses` checks where rows may end."""

    def read(server: Server, row: int, answer: Json) -> tuple[CompletionRow, int]:
        choice = only_choice(server, row, answer, call)
        tokens = choice.get("token_ids")
        logp = (choice.get("logprobs") or {}).get("token_logprobs")
        if not isinstance(tokens, list) or not isinstance(logp, list) or len(logp) != len(tokens):
            raise EngineLost(f"{server.url} sent row {row} without tokens, or not as many log-probabilities")
        for at, token in enumerate(tokens):
            if not isinstance(token, int) or not 0 <= token < vocabulary:
                raise EngineLost(
                    f"{server.url} sent {token!r} as token {at} of row {row}; expected 0 to {vocabulary - 1}"
                )
        check_logp(server, row, logp)
        return CompletionRow(tokens, FlatLogprobs(tokens, logp), choice.get("finish_reason")), len(tokens)

    return read


def score_body(prompts: Sequence[Tokens], responses: Sequence[Tokens], call: str) -> Callable[[Server, int], Json]:
    """Makes the request for the log-probabilities of a given response."""

    def body(server: Server, row: int) -> Json:
        prompt = [*prompts[row], *responses[row]]
        name = {"model": server.model, "request_id": f"{call}-{row}"}
        return {**DEFAULTS, **name, "prompt": prompt, "max_tokens": 1, "prompt_logprobs": 0}

    return body


def score_reader(
    prompts: Sequence[Tokens], responses: Sequence[Tokens], call: str
) -> Callable[[Server, int, Json], tuple[list[float], int]]:
    """Reads an answer: the log-probabilities of the response's tokens, and 0 tokens written."""

    def read(server: Server, row: int, answer: Json) -> tuple[list[float], int]:
        scores = only_choice(server, row, answer, call).get("prompt_logprobs")
        begin, text = len(prompts[row]), [*prompts[row], *responses[row]]
        if not isinstance(scores, list) or len(scores) != len(text):
            raise EngineLost(f"{server.url} did not score the {len(text)} tokens of row {row}")
        logp: list[Any] = []
        for token, score in zip(text[begin:], scores[begin:], strict=True):
            entry = score.get(str(token)) if isinstance(score, dict) else None
            logp.append(entry.get("logprob") if isinstance(entry, dict) else None)
        check_logp(server, row, logp)
        return logp, 0

    return read


def only_choice(server: Server, row: int, answer: Json, call: str) -> Json:
    """The only choice in an answer, which must be from the right model and to the right request."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise EngineLost(f"{server.url} did not send one response to row {row}: {str(answer)[:100]}")
    if answer.get("model") != server.model:
        raise EngineLost(f"{server.url} answers for the model {answer.get('model')}; expected {server.model}")
    if answer.get("id") != f"cmpl-{call}-{row}":  # a proxy that caches, or mixes up its connections
        raise EngineLost(
            f"{server.url} sent the answer to {answer.get('id')} for row {row}; expected cmpl-{call}-{row}: "
            "answers are swapped or sent twice"
        )
    return choices[0]


def check_logp(server: Server, row: int, logp: Sequence[Any]) -> None:
    """Refuse values that are not log-probabilities."""
    for at, value in enumerate(logp):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not UNDEFINED < value <= 0:
            shown = "NaN or -inf" if number and value <= UNDEFINED else value
            raise EngineLost(
                f"{server.url} sent {shown} as the log-probability of token {at} of row {row}; expected a number of at "
                "most 0: its weights or its numerics are broken"
            )
