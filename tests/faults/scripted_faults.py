"""What goes wrong with a server of the tests', one function each: answers, connections, publishes. Not when."""

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from pmdkit.llm.engines.vllm.weights_file import WeightFile, read_weights

from .scripted_server import Fault, Json, ScriptedServer

ROWS, INFO = "v1/completions", "weight_info"
BACK = 0.3  # seconds until somebody has started a server that died again


def row(change: Callable[[Json], Any]) -> Callable[..., Any]:
    """An act that changes the one choice of a written row; scores stay as they are."""

    def act(server: ScriptedServer, body: Json, honest: Callable[[], Any]) -> Any:
        said = honest()
        if "prompt_logprobs" not in body:
            change(said["choices"][0])
        return said

    return act


def logp(value: Any) -> Callable[..., Any]:
    """The second log-probability of a row is this."""

    def change(choice: Json) -> None:
        choice["logprobs"]["token_logprobs"][1] = value

    return row(change)


def token(value: int) -> Callable[..., Any]:
    """The second token of a row is this."""

    def change(choice: Json) -> None:
        choice["token_ids"][1] = value

    return row(change)


def cut_row(choice: Json) -> None:
    """A row of which the last tokens are missing."""
    choice["token_ids"] = choice["token_ids"][:-3]
    choice["logprobs"]["token_logprobs"] = choice["logprobs"]["token_logprobs"][:-3]


def dies(back: bool) -> Callable[..., Any]:
    """Killed in the middle of a request; started again a moment later, or never."""

    def act(server: ScriptedServer, body: Json, honest: Callable[[], Any]) -> None:
        port = server.port
        server.die()
        if back:
            threading.Timer(BACK, lambda: server.listen(port)).start()

    return act


def hangs(server: ScriptedServer, body: Json, honest: Callable[[], Any]) -> None:
    """Takes the request and says nothing for the rest of the test."""
    server.left.wait(300)


def slow(seconds: float) -> Callable[..., Any]:
    """Takes its time and writes a token now and then."""

    def act(server: ScriptedServer, body: Json, honest: Callable[[], Any]) -> Any:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not server.left.wait(0.05):
            server.tokens += 1
        return honest()

    return act


def fails(server: ScriptedServer, body: Json, honest: Callable[[], Any]) -> Any:
    """HTTP 500 with a word."""
    return 500, json.dumps({"error": {"message": "EngineCore died"}}).encode()


def cut(announced: int) -> Callable[..., Any]:
    """Half of an answer; `announced` bytes more were promised."""

    def act(server: ScriptedServer, body: Json, honest: Callable[[], Any]) -> Any:
        data = json.dumps(honest()).encode()
        half = data[: len(data) // 2]
        return (200, half, announced) if announced else (200, half)

    return act


def no_row(server: ScriptedServer, body: Json, honest: Callable[[], Any]) -> Any:
    """An answer without a response."""
    return {**honest(), "choices": []}


def sent_twice() -> Callable[..., Any]:
    """The answer to another request, which was sent before: as a proxy does that caches."""
    kept: list[Any] = []

    def act(server: ScriptedServer, body: Json, honest: Callable[[], Any]) -> Any:
        kept.append(honest())
        return kept[0] if len(kept) > 1 else kept[0] | {"id": "cmpl-another"}

    return act


def of_another(server: ScriptedServer, body: Json, honest: Callable[[], Any]) -> Any:
    """A server with another model has the port."""
    return {"data": [{"id": "stranger"}]} if "request_id" not in body else {**honest(), "model": "stranger"}


def other_tag(server: ScriptedServer, body: Json, honest: Callable[[], Any]) -> Any:
    """It says it has weights that nobody published."""
    return {"weight_version": "stranger-7"}


def half(then: Callable[..., Any] | None) -> Callable[..., Any]:
    """Half of the tensors are taken over, and then it says yes, or `then` answers."""

    def act(server: ScriptedServer, body: Json, honest: Callable[[], Any]) -> Any:
        weights = read_weights(WeightFile(**body["update_info"]), server.names.file_shapes)
        server.load(dict(list(weights.items())[: len(weights) // 2]))
        return {} if then is None else then(server, body, honest)

    return act


def keeps_cache(server: ScriptedServer, body: Json, honest: Callable[[], Any]) -> Any:
    """It says that keys and values are dropped."""
    return {"success": True}


def hot(server: ScriptedServer, body: Json, honest: Callable[[], Any]) -> Any:
    """Rows of another temperature than was asked for."""
    return honest() if "prompt_logprobs" in body else server.v1_completions(body, temperature=1.5)


def once(path: str, act: Callable[..., Any], first: int) -> tuple[Fault, ...]:
    """At one call."""
    return (Fault(path, act, first, 1),)


def ever(path: str, act: Callable[..., Any], first: int) -> tuple[Fault, ...]:
    """At that call and all behind it."""
    return (Fault(path, act, first),)
