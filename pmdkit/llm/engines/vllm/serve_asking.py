"""What a server is asked for one row, and what its answer must hold: tokens, log-probabilities, nothing undefined.

The route is /v1/completions, which all supported versions have; the one for tokens is switched off by default and no
faster.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pmdkit.llm.engines.protocol import EngineLost, Sampling, Tokens
from pmdkit.llm.engines.vllm.http import Json, Server

UNDEFINED = -9999.0  # what vLLM writes for a log-probability that is NaN or -inf, which JSON has no words for
SEEDS = 2**63 - 1  # vLLM's are signed

# everything that shapes the distribution is said: a server's own defaults may come with its model
PLAIN: Json = {"n": 1, "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0, "stream": False}
PLAIN |= {"presence_penalty": 0.0, "frequency_penalty": 0.0}


def response_body(
    prompts: Sequence[Tokens], group: int, seeds: Sequence[int], sampling: Sampling, ends: Sequence[int], call: str
) -> Callable[[Server, int], Json]:
    """The request for the response of a row, under a name that no other row of any call has."""

    def body(server: Server, row: int) -> Json:
        return {
            **PLAIN,
            "model": server.model,
            "request_id": f"{call}-{row}",
            "prompt": list(prompts[row // group]),
            "seed": int(seeds[row]) & SEEDS,
            "max_tokens": sampling.width,
            "temperature": 0.0 if sampling.greedy else sampling.temperature,
            "top_p": 1.0 if sampling.greedy else sampling.top_p,
            "logprobs": 0,
            "stop_token_ids": list(ends),
            "ignore_eos": True,  # the model's own is among ends, or is not meant
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }

    return body


@dataclass(frozen=True)
class Logps:
    """Tokens and their log-probabilities, with the names of vLLM's flat ones."""

    token_ids: list[int]
    logprobs: list[float]

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True)
class Row:
    """A response as reading.py wants it, with the names of vLLM's own outputs."""

    token_ids: list[int]
    logprobs: Logps
    finish_reason: str | None


def response_reader(vocabulary: int, call: str) -> Callable[[Server, int, Json], tuple[Row, int]]:
    """Of an answer: the row, and its number of tokens. Where rows may end, reading.py knows."""

    def read(server: Server, row: int, answer: Json) -> tuple[Row, int]:
        choice = the_choice(server, row, answer, call)
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
        reason = choice.get("finish_reason")
        return Row(tokens, Logps(tokens, logp), reason), len(tokens)

    return read


def score_body(prompts: Sequence[Tokens], responses: Sequence[Tokens], call: str) -> Callable[[Server, int], Json]:
    """The request for the log-probabilities of a given response."""

    def body(server: Server, row: int) -> Json:
        prompt = [*prompts[row], *responses[row]]
        name = {"model": server.model, "request_id": f"{call}-{row}"}
        return {**PLAIN, **name, "prompt": prompt, "max_tokens": 1, "prompt_logprobs": 0}

    return body


def score_reader(
    prompts: Sequence[Tokens], responses: Sequence[Tokens], call: str
) -> Callable[[Server, int, Json], tuple[list[float], int]]:
    """Of an answer: the log-probabilities of the response's tokens, and no tokens written."""

    def read(server: Server, row: int, answer: Json) -> tuple[list[float], int]:
        scores = the_choice(server, row, answer, call).get("prompt_logprobs")
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


def the_choice(server: Server, row: int, answer: Json, call: str) -> Json:
    """The only one, of the model that was asked, to the question that was asked."""
    choices = answer.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise EngineLost(f"{server.url} did not send one response to row {row}: {str(answer)[:100]}")
    if answer.get("model") != server.model:
        raise EngineLost(f"{server.url} answers for the model {answer.get('model')}; {server.model} was asked")
    if answer.get("id") != f"cmpl-{call}-{row}":  # a proxy that caches, or mixes up its connections
        raise EngineLost(
            f"{server.url} sent the answer to {answer.get('id')} for row {row}; expected cmpl-{call}-{row}: "
            "answers are swapped or sent twice"
        )
    return choices[0]


def check_logp(server: Server, row: int, logp: Sequence[Any]) -> None:
    """Refuse what is no logarithm of a probability."""
    for at, value in enumerate(logp):
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not math.isfinite(value) or not UNDEFINED < value <= 0:
            shown = "NaN or -inf" if number and value <= UNDEFINED else value
            raise EngineLost(
                f"{server.url} sent {shown} as the log-probability of token {at} of row {row}; expected a number of at "
                "most 0: its weights or its numerics are broken"
            )
