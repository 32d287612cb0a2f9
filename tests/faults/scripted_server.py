"""A vLLM 0.32 server as the trainer sees it, with a real tiny model inside, which misbehaves as a script says.

What goes wrong is one function each: answers, connections, publishes; they do not know when.
"""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
import torch

from pmdkit.llm.engines.base import Sampling
from pmdkit.llm.engines.vllm.weights_file import WeightFile, WeightNames, read_weights

from .scripted_engine import Cached

NAME = "scripted"
Json = dict[str, Any]


@dataclass(frozen=True)
class ServerFault:
    """At the calls first, first + 1, ... of a path, `times` of them, `act(server, body, honest)` answers instead.

    `honest()` is the right answer. An answer is JSON, or (status, bytes), or these and a number of bytes that are
    announced and do not follow; None breaks the connection off.
    """

    path: str
    act: Callable[["ScriptedServer", Json, Callable[[], Any]], Any]
    first: int = 0
    times: int = 10**9


class ScriptedServer:
    """Listens on a loopback port of its own from construction to `close`.

    Attributes:
        engine: writes the rows, one at a time.
        held: tag of the weights that it says it has.
        tokens: written in all its life, for /metrics.
        left: set when the test is over, for whoever hangs.
    """

    def __init__(self, model, ends, *faults: ServerFault) -> None:
        self.engine = Cached(deepcopy(model).requires_grad_(False), ends)
        self.names = WeightNames(model.config)
        self.faults = faults
        self.held, self.tokens = "default", 0
        self.calls: Counter[str] = Counter()
        self.left = threading.Event()
        self.one = threading.RLock()
        self.connections: set[Any] = set()
        self.listen(0)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def listen(self, port: int) -> None:
        """Begin to answer; a port of 0 takes a free one."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def setup(self):
                super().setup()
                server.connections.add(self.connection)

            def finish(self):
                server.connections.discard(self.connection)
                with suppress(OSError):
                    super().finish()

            def do_GET(self):
                server.answer(self, {})

            def do_POST(self):
                size = int(self.headers.get("Content-Length") or 0)
                server.answer(self, json.loads(self.rfile.read(size)) if size else {})

        self.http = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self.http.daemon_threads = True
        self.http.handle_error = lambda *_: None  # whoever asked has gone
        self.port = self.http.server_port
        threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler, body: Json) -> None:
        """The honest answer, or what the script says."""
        path = handler.path.partition("?")[0].strip("/")
        with self.one:
            call = self.calls[path]
            self.calls[path] += 1
        reply = getattr(self, path.replace("/", "_"))
        found = next((f for f in self.faults if f.path == path and f.first <= call < f.first + f.times), None)
        said = reply(body) if found is None else found.act(self, body, lambda: reply(body))
        if said is None:
            handler.close_connection = True
            return
        status, data, *more = said if isinstance(said, tuple) else (200, json.dumps(said).encode())
        handler.send_response(status)
        handler.send_header("Content-Length", str(len(data) + sum(more)))
        handler.end_headers()
        handler.wfile.write(data)
        handler.close_connection = bool(more)

    def die(self) -> None:
        """As after SIGKILL: nobody listens, every connection is broken, the weights are gone."""
        self.http.shutdown()
        self.http.server_close()
        for connection in list(self.connections):
            with suppress(OSError):
                connection.shutdown(2)
        with self.one, torch.no_grad():
            self.held = "default"
            for weight in self.engine.model.parameters():
                weight.fill_(torch.nan)

    def health(self, _: Json) -> Any:
        return 200, b""

    def v1_models(self, _: Json) -> Any:
        return {"data": [{"id": NAME}]}

    def version(self, _: Json) -> Any:
        return {"version": "0.32.0"}

    def server_info(self, _: Json) -> Any:
        model = {"logprobs_mode": "processed_logprobs", "max_model_len": 4096}
        return {"vllm_config": {"model_config": model, "weight_transfer_config": {"backend": "pmdkit-file"}}}

    def metrics(self, _: Json) -> Any:
        return 200, f'vllm:generation_tokens_total{{engine="0"}} {self.tokens}.0\n'.encode()

    def nothing(self, _: Json) -> Any:
        return {}

    pause = resume = init_weight_transfer_engine = start_weight_update = nothing

    def update_weights(self, body: Json) -> Any:
        self.load(read_weights(WeightFile(**body["update_info"]), self.names.file_shapes))
        return {}

    def load(self, weights) -> None:
        """Take over some weights."""
        own = self.engine.model.state_dict()
        with self.one, torch.no_grad():
            for name, value in weights.items():
                own[name].copy_(value)

    def finish_weight_update(self, body: Json) -> Any:
        self.held = body["weight_version"]
        return {}

    def reset_prefix_cache(self, _: Json) -> Any:
        self.engine.forget()
        return {"success": True}

    def weight_info(self, _: Json) -> Any:
        return {"weight_version": self.held}

    def v1_completions(self, body: Json, **how: Any) -> Any:
        said = {"id": f"cmpl-{body['request_id']}", "model": NAME}
        with self.one:
            choice = self.scored(body) if "prompt_logprobs" in body else self.written(body, **how)
        return {**said, "choices": [choice]}

    def scored(self, body: Json) -> Json:
        """Log-probabilities of all tokens of a prompt but the first."""
        text = body["prompt"]
        found = self.engine.score([text[:1]], [text[1:]])[0].tolist()
        return {"prompt_logprobs": [None] + [{str(t): {"logprob": x}} for t, x in zip(text[1:], found, strict=True)]}

    def written(self, body: Json, **how: Any) -> Json:
        """One row."""
        sampling = Sampling(body["max_tokens"], **{"temperature": body["temperature"] or 1.0, **how})
        drawn = self.engine.generate([body["prompt"]], 1, np.array([body["seed"]], dtype=np.uint64), sampling)
        tokens, logp = drawn.tokens[0][drawn.mask[0]].tolist(), drawn.logp[0][drawn.mask[0]].tolist()
        self.tokens += len(tokens)
        reason = "stop" if bool(drawn.ended[0]) else "length"
        return {"token_ids": tokens, "logprobs": {"token_logprobs": logp}, "finish_reason": reason}

    def close(self) -> None:
        """End, hung calls too."""
        self.left.set()
        self.http.shutdown()
        self.http.server_close()


# What goes wrong, one function each.

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


def once(path: str, act: Callable[..., Any], first: int) -> tuple[ServerFault, ...]:
    """At one call."""
    return (ServerFault(path, act, first, 1),)


def ever(path: str, act: Callable[..., Any], first: int) -> tuple[ServerFault, ...]:
    """At that call and all behind it."""
    return (ServerFault(path, act, first),)
