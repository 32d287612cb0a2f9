"""Engines of this process that misbehave by a script; and one with a prefix cache, as engines of their own have."""

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch

from pmdkit.llm.engines.base import EngineConfig
from pmdkit.llm.engines.transformers import RunningBatch, TransformersEngine


class Cached(TransformersEngine):
    """The engine of transformers with a prefix cache: what is known of a prompt is kept until `forget`."""

    def __init__(self, *given: Any, **more: Any) -> None:
        super().__init__(*given, **more)
        self.known: dict[str, Any] = {}

    def batch(self, *given: Any) -> RunningBatch:
        return Remembering(self, *given)

    def publish(self, weights, version) -> None:
        super().publish(weights, version)
        self.forget()

    def forget(self) -> None:
        """Drop keys and values, as an engine must that has other weights."""
        self.known.clear()


class Remembering(RunningBatch):
    """Reads a prompt once in the life of its engine."""

    def __init__(self, engine: Cached, *given: Any) -> None:
        super().__init__(engine, *given)
        self.known = engine.known

    def read_prompts(self, some):
        key = str([one.prompt for one in some])
        if key not in self.known:
            self.known[key] = super().read_prompts(some)
        return self.known[key]


@dataclass(frozen=True)
class Slip:
    """In calls first, first + 1, ... of a method, `times` of them, `act(engine, honest, *arguments)` is done instead.

    `honest` is the method as it should be.
    """

    method: str
    act: Callable[..., Any]
    first: int = 0
    times: int = 10**9


class ScriptedEngine(Cached):
    """Weights of its own, and a slip where the script says so.

    Attributes:
        restarts: calls of `restart`; its weights are gone then.
    """

    def __init__(self, model, ends, *slips: Slip) -> None:
        super().__init__(deepcopy(model).requires_grad_(False), ends)
        self.slips, self.calls, self.restarts = slips, Counter(), 0

    def act(self, method: str, honest: Callable[..., Any], *given: Any) -> Any:
        """The honest call, or the slip of this one."""
        call = self.calls[method]
        self.calls[method] += 1
        slip = next((s for s in self.slips if s.method == method and s.first <= call < s.first + s.times), None)
        return honest(*given) if slip is None else slip.act(self, honest, *given)

    def generate(self, prompts, group, seeds, sampling, progress=None):
        return self.act("generate", super().generate, prompts, group, seeds, sampling, progress)

    def score(self, prompts, responses):
        return self.act("score", super().score, prompts, responses)

    def publish(self, weights, version) -> None:
        self.act("publish", super().publish, weights, version)

    def restart(self) -> None:
        self.restarts += 1
        with torch.no_grad():
            for weight in self.model.parameters():
                weight.fill_(torch.nan)
        self.forget()
        self.version = 0


class Maker:
    """Stands for the module of an engine: `make` builds it from the script of the test that runs."""

    def __init__(self) -> None:
        self.slips: tuple[Slip, ...] = ()
        self.made: ScriptedEngine | None = None

    def make(self, wanted: EngineConfig) -> ScriptedEngine:
        """As the function that ENGINES names."""
        self.made = ScriptedEngine(wanted.model, wanted.ends, *self.slips)
        return self.made
