"""Checks of a server's replies where they enter: how many, how long, finite, and in range.

A reply that is not what was asked for ends the run: a log-probability too many would shift the rows behind it, and the
run would train on them.
"""

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from pmdkit.errors import ComponentDied, short

ROUNDING = 1e-3  # nats by which rounding may lift a log-probability above 0
LOWEST = -1e4  # nats, far below the log-softmax of finite logits
INTACT = "the last checkpoint is intact: have the server mended, then run again with --resume"


class WrongReply(ComponentDied):
    """A server's reply does not fit the request."""


def refuse(call: str, got: str, wanted: str) -> WrongReply:
    """The error for a reply to `call` that holds `got` instead of `wanted`."""
    return WrongReply(f"the Tinker server answers {call} with {got}; expected {wanted}; {INTACT}")


def check_logps(call: str, rows: Sequence[Any], lengths: Sequence[int]) -> list[Tensor]:
    """The log-probabilities of each sequence as a [n] float32 tensor; rows that are tensors stay themselves.

    Raises:
        WrongReply: a sequence is missing or too many, has another length, or holds what is no log-probability.
    """
    if len(rows) != len(lengths):
        raise refuse(call, f"{len(rows)} sequences", f"{len(lengths)}")
    checked = []
    for number, (row, length) in enumerate(zip(rows, lengths, strict=True), 1):
        try:
            logp = row if isinstance(row, Tensor) else torch.tensor(list(row), dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError, OverflowError):
            raise refuse(call, f"{short(row)} for sequence {number}", "log-probabilities") from None
        if logp.shape != (length,):
            raise refuse(call, f"{len(logp)} log-probabilities for sequence {number}", f"{length}")
        wrong = ~((logp >= LOWEST) & (logp <= ROUNDING))  # NaN compares as False
        if bool(wrong.any()):
            got = f"a log-probability of {float(logp[wrong][0]):.3g} in sequence {number}"
            raise refuse(call, got, f"{LOWEST:.0f} to 0 nats")
        checked.append(logp)
    return checked


def check_samples(sequences: Sequence[Any], group: int, width: int) -> list[tuple[list[int], list[float]]]:
    """Tokens and log-probabilities of `group` responses of 1 to `width` tokens.

    What a token may be in this model, and where a response ends, `ResponseCheck` checks for every engine.
    """
    call = "a request for responses"
    if len(sequences) != group:
        raise refuse(call, f"{len(sequences)} responses", f"{group}")
    rows = []
    for number, row in enumerate(sequences, 1):
        try:
            tokens = list(row.tokens)
        except TypeError:
            raise refuse(call, f"{short(row.tokens)} as response {number}", "tokens") from None
        if not 1 <= len(tokens) <= width:
            raise refuse(call, f"{len(tokens)} tokens in response {number}", f"1 to {width}")
        for token in tokens:
            if not isinstance(token, Integral) or isinstance(token, bool) or not 0 <= int(token) < 2**31:
                raise refuse(call, f"token {short(token)} in response {number}", "the number of a token")
        rows.append(tokens)
    logps = check_logps(call, [row.logprobs for row in sequences], [len(tokens) for tokens in rows])
    # rounding above 0 is 0
    return [(tokens, logp.clamp(max=0).tolist()) for tokens, logp in zip(rows, logps, strict=True)]


def check_norm(metrics: Any) -> float:
    """The gradient's norm among the metrics of an optimizer step; NaN if the server reports none."""
    call = "an optimizer step"
    if not isinstance(metrics, Mapping | None):
        raise refuse(call, f"the metrics {short(metrics)}", "a table of numbers")
    norms = [value for name, value in (metrics or {}).items() if str(name).endswith("grad_norm")]
    for norm in norms:
        if not isinstance(norm, float | int) or not 0 <= norm < float("inf"):
            raise refuse(call, f"the gradient's norm {short(norm)}", "a finite number, 0 or more")
    return float(norms[0]) if norms else float("nan")


def check_path(path: Any) -> str:
    """The path of a saved state."""
    if not isinstance(path, str) or not 0 < len(path) <= 1000:
        raise refuse("a request to save", f"the path {short(path)}", "a path to load the state from")
    return path
