"""A Tinker server that lies after it was certified: no lie is trained on in silence, and none is called a bug."""

import asyncio
import math
import socket
import sys
import threading
import time
from contextlib import suppress
from copy import deepcopy
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM

from pmdkit.errors import ComponentDied
from pmdkit_adapters.tinker import server, service

from .test_tinker import REWARD, TINY, URL, folder
from .tinker_double import Sampler, Tinker, Training, done

NAN, INF = math.nan, math.inf
__all__ = ["folder"]


class Lie:
    """A double whose server lies from its first sampler on, after the certificate."""

    def __init__(self, monkeypatch, server):
        self.patch, self.server, self.live = monkeypatch, server, False
        honest = Training.save_weights_and_get_sampling_client

        def sampler(training):
            self.live = True
            return honest(training)

        monkeypatch.setattr(Training, "save_weights_and_get_sampling_client", sampler)

    def wrap(self, kind, name, change):
        """`change(honest, client, ...)` takes the place of a method while the server lies."""
        honest = getattr(kind, name)

        def lying(client, *given, **named):
            call = lambda: honest(client, *given, **named)  # noqa: E731
            return change(call, client, *given, **named) if self.live else call()

        self.patch.setattr(kind, name, lying)


def samples(change):
    """Rows of (tokens, logprobs) and the parameters of the request, to other rows."""

    def plant(lie):
        def sample(call, _, prompt, num_samples, sampling_params):
            rows = [(row.tokens, row.logprobs) for row in call().result().sequences]
            rows = change(rows, sampling_params)
            return done(SimpleNamespace(sequences=[SimpleNamespace(tokens=t, logprobs=p) for t, p in rows]))

        lie.wrap(Sampler, "sample", sample)

    return plant


def each(change):
    return samples(lambda rows, params: [change(tokens, logps) for tokens, logps in rows])


def tokens(change):
    return each(lambda tokens, logps: (change(tokens), logps))


def logps(change):
    return each(lambda tokens, logps: (tokens, change(logps)))


def forward(change):
    """The log-probabilities of all sequences, to others; the custom call reads them too."""

    def plant(lie):
        def outputs(call, *_):
            rows = [row["logprobs"].data for row in call().result().loss_fn_outputs]
            kept = [{"logprobs": SimpleNamespace(data=row)} for row in change(rows)]
            return done(SimpleNamespace(loss_fn_outputs=kept, metrics={}))

        lie.wrap(Training, "forward", outputs)

    return plant


def reference(change):
    return lambda lie: lie.wrap(Sampler, "compute_logprobs", lambda call, *_: done(change(call().result())))


def metrics(change):
    def plant(lie):
        def step(call, *_):
            call()
            return done(SimpleNamespace(metrics=change))

        lie.wrap(Training, "optim_step", step)

    return plant


def step(change):
    return lambda lie: lie.wrap(Training, "optim_step", change)


def ignored(call, client, adam):
    client.adam.zero_grad()
    return done(SimpleNamespace(metrics={"grad_norm": 1.0}))


def scaled(call, client, adam):
    adam["learning_rate"] *= 100
    return call()


def kept(call, client, adam):
    client.adam.zero_grad = lambda: None
    return call()


def reduced(fault):
    def plant(lie):
        def backward(call, client, *_):
            client.server.fault = fault
            return call()

        lie.wrap(Training, "forward_backward", backward)

    return plant


def stale(lie):
    samplers = []
    honest = Training.save_weights_and_get_sampling_client
    lie.patch.setattr(
        Training,
        "save_weights_and_get_sampling_client",
        lambda client: samplers[0] if samplers else samplers.append(honest(client)) or samplers[0],
    )


def another(lie):
    honest = Training.save_weights_and_get_sampling_client

    def sampler(client):
        model = deepcopy(client.model)
        with torch.no_grad():
            for at, weight in enumerate(model.parameters()):
                weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(at))
        honest(client)
        return Sampler(client.server, model)

    lie.patch.setattr(Training, "save_weights_and_get_sampling_client", sampler)


def swapped(lie):
    last = []

    def sample(call, *_, **__):
        last.append(call())
        return last[-3] if len(last) > 2 and len(last[-3].result().sequences) == 4 else last[-1]

    lie.wrap(Sampler, "sample", sample)


def path(value):
    return lambda lie: lie.wrap(Training, "save_state", lambda call, *_: done(SimpleNamespace(path=value)))


def raises(kind, name, problem):
    def plant(lie):
        def fail(*_, **__):
            raise problem

        lie.wrap(kind, name, fail)

    return plant


DIED = {
    "sampled nan": logps(lambda p: [NAN] * len(p)),
    "sampled one nan": logps(lambda p: [NAN, *p[1:]]),
    "sampled inf": logps(lambda p: [INF] * len(p)),
    "sampled -inf": logps(lambda p: [-INF] * len(p)),
    "sampled above 0": logps(lambda p: [5.0] * len(p)),
    "sampled far below 0": logps(lambda p: [-1e300] * len(p)),
    "sampled one short": logps(lambda p: p[:-1]),
    "sampled one long": logps(lambda p: [*p, -1.0]),
    "sampled none": logps(lambda p: None),
    "sampled nulls": logps(lambda p: [None] * len(p)),
    "sampled words": logps(lambda p: ["-1"] * len(p)),
    "sampled nested": logps(lambda p: [[x] for x in p]),
    "token of another model": tokens(lambda t: [10**9] * len(t)),
    "token below 0": tokens(lambda t: [-1] * len(t)),
    "token of 70 bits": tokens(lambda t: [2**70] * len(t)),
    "token a fraction": tokens(lambda t: [1.5] * len(t)),
    "token a boolean": tokens(lambda t: [True] * len(t)),
    "token a word": tokens(lambda t: ["a"] * len(t)),
    "tokens null": tokens(lambda t: None),
    "no tokens": each(lambda t, p: ([], [])),
    "longer than the budget": each(lambda t, p: (t * 40, p * 40)),
    "cut off early": each(lambda t, p: ([7], [-1.0])),
    "goes on after its end": samples(lambda rows, params: [([params.stop[0], 7], [-1.0] * 2)] * len(rows)),
    "a response short": samples(lambda rows, params: rows[:-1]),
    "a response more": samples(lambda rows, params: [*rows, rows[0]]),
    "no responses": samples(lambda rows, params: []),
    "very many responses": samples(lambda rows, params: rows * 25000),
    "forward nan": forward(lambda rows: [[NAN] * len(row) for row in rows]),
    "forward above 0": forward(lambda rows: [[5.0] * len(row) for row in rows]),
    "forward far below 0": forward(lambda rows: [[-1e30] * len(row) for row in rows]),
    "forward one short": forward(lambda rows: [row[:-1] for row in rows]),
    "forward one long": forward(lambda rows: [[*row, -1.0] for row in rows]),
    "forward nulls": forward(lambda rows: [[None] * len(row) for row in rows]),
    "forward a row short": forward(lambda rows: rows[:-1]),
    "forward a row more": forward(lambda rows: [*rows, rows[0]]),
    "forward no rows": forward(lambda rows: []),
    "forward without its key": lambda lie: lie.wrap(
        Training, "forward", lambda call, *_: done(SimpleNamespace(loss_fn_outputs=[{}], metrics={}))
    ),
    "forward null": lambda lie: lie.wrap(Training, "forward", lambda call, *_: done(None)),
    "forward raises a ValueError": raises(Training, "forward", ValueError("invalid literal")),
    "reference nan": reference(lambda row: [None] + [NAN] * (len(row) - 1)),
    "reference above 0": reference(lambda row: [5.0] * len(row)),
    "reference short": reference(lambda row: row[:3]),
    "reference long": reference(lambda row: [*row, -1.0, -1.0]),
    "reference empty": reference(lambda row: []),
    "reference nulls": reference(lambda row: [None] * len(row)),
    "reference null": reference(lambda row: None),
    "norm nan": metrics({"grad_norm": NAN}),
    "norm negative": metrics({"grad_norm": -1.0}),
    "norm a word": metrics({"grad_norm": "x"}),
    "metrics a list": metrics([1]),
    "step ignored": step(ignored),
    "step of 100 times the rate": step(scaled),
    "step keeps the gradient": step(kept),
    "step raises a KeyError": raises(Training, "optim_step", KeyError("x")),
    "sign turned": reduced("sign"),
    "mean over sequences": reduced("mean"),
    "sum over weights": reduced("sum"),
    "weights in absolute value": reduced("absolute"),
    "sampler stays old": stale,
    "path null": path(None),
    "path empty": path(""),
}
WARNED = {
    "sampler of another model": another,
    "responses of another prompt": swapped,
    "forward rows in reverse": forward(lambda rows: rows[::-1]),
}


def run(folder, call, monkeypatch, name, plant):
    """Exit code of a run of two steps on a server that lies."""
    Path("my.py").write_text(REWARD)
    double = Tinker(str(folder), AutoModelForCausalLM.from_pretrained(folder).eval())
    monkeypatch.setitem(sys.modules, "tinker", double)
    monkeypatch.setattr(service, "urlopen", lambda url, timeout: BytesIO())
    monkeypatch.setenv(service.KEY, "tml-test")
    if plant is not None:
        plant(Lie(monkeypatch, double))
    changes = ["model.build=null", f"model.path={folder}", "rollout.width=8", "prompts=2"]
    changes += ["evaluation.problems=2", f"objective.kl_coef={0.1 if 'reference' in name else 0}"]
    words = ["--backend", "tinker", "--url", URL, "--reward", "my.py:fn", "--steps", 2, "--out", "run"]
    return call("llm", TINY, *words, "--set", *changes)


@pytest.mark.slow
@pytest.mark.parametrize("name", DIED)
def test_a_lie_ends_the_run_with_7_and_says_what_it_was(name, folder, call, capsys, monkeypatch):
    assert run(folder, call, monkeypatch, name, DIED[name]) == 7
    assert "a bug" not in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("name", WARNED)
def test_what_only_a_comparison_shows_is_warned_of(name, folder, call, capsys, monkeypatch):
    code = run(folder, call, monkeypatch, name, WARNED[name])
    said = capsys.readouterr().err
    assert code == 7 or (code == 0 and "differ" in said)
    assert "a bug" not in said


@pytest.mark.slow
def test_an_honest_server_is_believed(folder, call, capsys, monkeypatch):
    assert run(folder, call, monkeypatch, "reference", None) == 0
    assert "warning" not in capsys.readouterr().err


def test_a_server_that_does_not_answer_is_left_after_its_time(capsys, monkeypatch):
    monkeypatch.setattr(server, "NOTICE", 0.05)
    slow = server.Server(URL)
    for _ in range(2):
        with pytest.raises(ComponentDied, match="no answer"):
            slow.ask("score", lambda: time.sleep(30), 0.1)
    assert capsys.readouterr().err.count("waiting") == 1


def get(reply):
    """What an `ask` for a page gives, from a server on this machine that sends these bytes for ever."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve():
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.recv(2**16)
                    connection.sendall(reply)
                    while True:
                        connection.sendall(b"400\r\n" + b" " * 2**10 + b"\r\n")

        threading.Thread(target=serve, daemon=True).start()
        there = server.Server(f"http://127.0.0.1:{listener.getsockname()[1]}")

        async def page():
            async with there.http_client() as client:
                return (await client.get(there.url, headers={"x-api-key": "tml-secret"})).text

        return there.ask("answer", lambda: asyncio.run(page()), 20)


@pytest.mark.parametrize(
    ("head", "held"),
    [
        (b"307 T\r\nlocation: http://127.0.0.2:9/", "redirects"),
        (b"304 N", r"redirects .*\(status 304\)"),
        (b"200 OK\r\ntransfer-encoding: chunked", "in one reply"),
        (b"200 OK\r\ntransfer-encoding: chunked\r\ncontent-encoding: gzip", "compressed"),
    ],
)
def test_a_redirect_and_a_reply_without_end_are_refused(head, held, monkeypatch):
    monkeypatch.setattr(server, "LARGEST", 2**16)
    with pytest.raises(ComponentDied, match=held):
        get(b"HTTP/1.1 " + head + b"\r\n\r\n")
