"""What goes wrong with an engine in the trainer's process, one function each. An act gets the engine, the honest call
and its arguments.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from pmdkit.llm.engines.base import EngineLost, Responses
from pmdkit.llm.engines.transformers import TransformersEngine

from .scripted_engine import ScriptedEngine


def drawn(change: Callable[[Responses], Responses]) -> Callable[..., Responses]:
    """An act of `generate` that changes the honest answer."""
    return lambda engine, honest, *given: change(honest(*given))


def logp(value: float) -> Callable[..., Responses]:
    """The second log-probability of the first row is this."""

    def change(found: Responses) -> Responses:
        numbers = found.logp.clone()
        numbers[0, 1] = value
        return replace(found, logp=numbers)

    return drawn(change)


def token(value: int) -> Callable[..., Responses]:
    """The second token of the first row is this."""

    def change(found: Responses) -> Responses:
        tokens = found.tokens.clone()
        tokens[0, 1] = value
        return replace(found, tokens=tokens)

    return drawn(change)


def rows(order: Callable[[int], list[int]]) -> Callable[..., Responses]:
    """Of N rows, those that `order(N)` names."""

    def change(found: Responses) -> Responses:
        some = torch.tensor(order(len(found.ended)))
        parts = {name: getattr(found, name)[some] for name in ("tokens", "logp", "mask", "ended")}
        return replace(found, **parts)

    return drawn(change)


def masked(row: slice, places: slice) -> Callable[..., Responses]:
    """Some places of some rows are said to be no part of the response."""

    def change(found: Responses) -> Responses:
        mask = found.mask.clone()
        mask[row, places] = False
        return replace(found, mask=mask, logp=torch.where(mask, found.logp, 0.0))

    return drawn(change)


def older(found: Responses) -> Responses:
    """By its own words the answer is of the version before."""
    return replace(found, version=found.version - 1)


def dies(engine: ScriptedEngine, honest: Any, *given: Any) -> None:
    """As vLLM's core does."""
    raise EngineLost("the engine was killed")


def hangs(left: threading.Event) -> Callable[..., None]:
    """Until the test is over."""

    def act(engine: ScriptedEngine, honest: Any, *given: Any) -> None:
        left.wait(300)
        raise EngineLost("let go at last")

    return act


def slow(seconds: float) -> Callable[..., Responses]:
    """Takes its time, and says so."""

    def act(engine: ScriptedEngine, honest: Any, *given: Any) -> Responses:
        progress, end = given[-1], time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(0.05)
            if progress is not None:
                progress(1, 0)
        return honest(*given)

    return act


def hot(engine: ScriptedEngine, honest: Any, prompts: Any, group: Any, seeds: Any, sampling: Any, tell: Any) -> Any:
    """Rows of another temperature than was asked for."""
    return honest(prompts, group, seeds, replace(sampling, temperature=1.5), tell)


def half(says: str) -> Callable[..., None]:
    """Half of the tensors are taken over; then it is lost, or says nothing where `says` is empty."""

    def act(engine: ScriptedEngine, honest: Any, weights: Any, version: int) -> None:
        own = engine.model.state_dict()
        with torch.no_grad():
            for name in list(weights)[: len(weights) // 2]:
                own[name].copy_(weights[name])
        engine.forget()
        if says:
            raise EngineLost(says)
        engine.version = version

    return act


def keeps_cache(engine: ScriptedEngine, honest: Any, weights: Any, version: int) -> None:
    """New weights, and what it knew of prompts."""
    TransformersEngine.publish(engine, weights, version)


def keeps_weights(engine: ScriptedEngine, honest: Any, weights: Any, version: int) -> None:
    """A new version, and the old weights."""
    engine.version = version
