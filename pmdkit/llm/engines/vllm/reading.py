"""vLLM's outputs as rows: checked token by token, since a wrong number in them would train a wrong policy."""

from collections.abc import Sequence
from math import isfinite
from typing import Any

import torch

from pmdkit.llm.engines.protocol import EngineLost, Responses


def responses(outputs: Sequence[Any], ends: Sequence[int], width: int, version: int) -> Responses:
    """Rows from finished outputs in the order of rows.

    Args:
        outputs: N `CompletionOutput` of vLLM.
        ends: tokens that end a response; the first fills up rows.
        width: budget, tokens.
        version: of the weights that must have written them.

    Raises:
        EngineLost: a log-probability is missing, not finite or positive; a row is empty, too long, goes on behind an
            end, stops without one, or was written by other weights.
    """
    last = set(ends)
    rows = []
    for row, output in enumerate(outputs):
        tokens = list(output.token_ids)
        check_version(row, getattr(output, "weight_versions", None), version)
        ended = bool(tokens) and tokens[-1] in last
        if not tokens or len(tokens) > width or not (ended or len(tokens) == width) or last & set(tokens[:-1]):
            raise EngineLost(
                f"vLLM answers row {row} with {len(tokens)} tokens of {width}, last {tokens[-1:]}, reason "
                f"{output.finish_reason}; expected an end of {sorted(last)}, or the whole budget"
            )
        rows.append((tokens, logps(row, tokens, output.logprobs), ended))
    longest = max(len(tokens) for tokens, _, _ in rows)
    return Responses(
        tokens=torch.tensor([tokens + [ends[0]] * (longest - len(tokens)) for tokens, _, _ in rows]),
        logp=torch.tensor([logp + [0.0] * (longest - len(logp)) for _, logp, _ in rows], dtype=torch.float32),
        mask=torch.arange(longest) < torch.tensor([len(tokens) for tokens, _, _ in rows])[:, None],
        ended=torch.tensor([ended for _, _, ended in rows]),
        version=version,
    )


def check_version(row: int, spans: Any, version: int) -> None:
    """Every token of a row is of one version; a vLLM that writes none on rows gives None."""
    if spans is not None and {span.version for span in spans} != {str(version)}:
        raise EngineLost(
            f"row {row} was written by weights {[span.version for span in spans]}; expected version {version} alone"
        )


def logps(row: int, tokens: Sequence[int], found: Any) -> list[float]:
    """Of the tokens of one row: flat lists of vLLM, or one small dictionary per token."""
    if found is None or len(found) != len(tokens):
        raise EngineLost(f"vLLM answers row {row} with {len(tokens)} tokens and not as many log-probabilities")
    if getattr(found, "token_ids", None) == list(tokens):
        numbers = list(found.logprobs)
    else:
        numbers = [
            entry[token].logprob if entry and token in entry else float("nan")
            for entry, token in zip(found, tokens, strict=True)
        ]
    for place, number in enumerate(numbers):
        if number is None or not isfinite(number) or number > 0:
            raise EngineLost(
                f"vLLM answers row {row} with log-probability {number} for token {place}, id {tokens[place]}; "
                "expected a finite number of at most 0: the engine, or the weights it was given, are broken"
            )
    return numbers
