"""Engines of this process that misbehave by a script: the engine, its slips, and a tiny run on it by the command line.

One has a prefix cache, as engines of their own have. A slip is one function, whose act gets the engine, the honest call
and its arguments; it does not know when it is called.
"""

import gc
import hashlib
import json
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from pmdkit.llm.backend import build_model
from pmdkit.llm.engines.base import EngineConfig, EngineLost, Responses
from pmdkit.llm.engines.transformers import RunningBatch, TransformersEngine
from pmdkit.llm.model import end_tokens
from pmdkit.observe import checkpoint
from pmdkit.specs.llm import LanguageModelTable

from .harness import GRADE


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


# What goes wrong, one function each.


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


# A run from the command line: how it ended, what was said, and its bits.

TINY = Path(__file__).parents[1] / "llm" / "tiny.toml"
STEPS = 2
SMALL = {
    "schedule.steps": STEPS,
    "schedule.prompts": 2,
    "rollout.width": 8,
    "rollout.record_every": 0,
    "rollout.canary": 2,
    "evaluation.problems": 2,
    "evaluation.every": 0,
}
ENV = {"kind": "arithmetic", "numbers": 2, "problems": 300}


def small_model():
    """The model that such a run builds, and the tokens that end a response."""
    model, tokenizer = build_model(LanguageModelTable(build="starter"), ENV, seed=0)
    return model, list(end_tokens(model, tokenizer))


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    Attributes:
        code: exit code.
        said: standard error.
        folder: of the run.
    """

    code: int
    said: str
    folder: Path

    @property
    def sentence(self) -> str:
        """The one line of the error."""
        lines = [line for line in self.said.splitlines() if line.startswith("pmdkit: error: ")]
        assert len(lines) == 1, self.said
        return lines[0]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """metrics.jsonl."""
        path = self.folder / "metrics.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def steps(self) -> list[int]:
        """Of the checkpoints, all of them whole."""
        folder = self.folder / "checkpoints"
        found = checkpoint.steps(folder) if folder.exists() else []
        assert [checkpoint.damage(folder / f"step-{step}", step) for step in found] == [None] * len(found)
        return found

    @property
    def bits(self) -> Any:
        """Weights, optimizer, and metrics without clocks and restarts: what a recovered run must have in common."""
        last = self.folder / "checkpoints" / f"step-{self.steps[-1]}"
        files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in last.glob("*.safetensors")}
        other = ("seconds_rollout", "seconds_update", "engine_restarts")
        return files, [{key: value for key, value in row.items() if key not in other} for row in self.rows]


class Runner:
    """Starts such runs.

    Args:
        call: runs a command in this process, and returns its exit code.
        capsys: of pytest.
        folder: where runs go.
    """

    def __init__(self, call, capsys, folder: Path) -> None:
        self.call, self.capsys, self.folder, self.count = call, capsys, folder, 0

    def __call__(self, options: dict[str, Any], *more: str, out: Path | None = None) -> Ended:
        """One run, to its end."""
        self.count += 1
        out = out or self.folder / f"run-{self.count}"
        settings = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in options.items()]
        if "reward.grade" not in options:  # where rewards are equal no update is taken, and no engine has wrong weights
            grader = self.folder / "grader.py"
            grader.write_text(GRADE)
            settings += [f"reward.grade={grader}:grade", "rollout.cut_off=score"]
        self.capsys.readouterr()
        code = self.call("llm", str(TINY), "--out", str(out), *more, "--set", *settings)
        with warnings.catch_warnings():  # a run that is refused leaves its grader's process to the end of this one
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()
        return Ended(code, self.capsys.readouterr().err, out)
