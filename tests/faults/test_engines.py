"""Engines that fail by a script: each run ends with the documented code and one sentence, or on undisturbed bits.

Servers are spoken to over HTTP, engines of this process through the protocol. Both hold a real tiny model.

| what goes wrong | once | for good | what the run says |
|---|---|---|---|
| dies at a request | recovers | 7 | the server is lost, or does not answer |
| hangs | recovers | 7 | is silent |
| slow, and writes | goes on | goes on | |
| answer cut: bytes, JSON, row | recovers | 7 | is lost; without JSON; tokens of 8 |
| HTTP 500 | recovers | 7 | fails, with the server's words |
| K - 1 responses | recovers | 7 | did not send one response; 7 rows |
| answers swapped or sent twice | recovers | 7 | swapped or sent twice; handed out twice |
| NaN, null, infinite or positive log-probabilities | recovers | 7 | the number, row and token |
| token ids out of the vocabulary | recovers | 7 | the id |
| wrong version | recovers (server), 7 | 7 | has weights; weights of version |
| publish fails half way, or refuses to finish | recovers | 7 | the server's words |
| half-applied weights, and says yes | 7 | 7 | engine and trainer disagree |
| stale prefix cache after a publish | 7 | 7 | its own reading, older weights |
| log-probabilities of another temperature | 7 | 7 | its own reading |
| a foreign server on the port | recovers | 3 | another server answers |
"""

import math
import re
import sys
import threading
import time

import pytest

from pmdkit.llm.engines import ENGINES, vllm
from pmdkit.llm.engines.vllm import server as server_module
from pmdkit.llm.engines.vllm.http import Server
from tests.nightly import mostly_nightly

from . import scripted_engine as slips
from . import scripted_server as faults
from .scripted_engine import SMALL, STEPS, Maker, Runner, Slip, small_model
from .scripted_server import INFO, ROWS, ScriptedServer, ServerFault, ever, once

SILENCE = 2.0  # seconds
START = 20.0  # seconds for a server to answer at all; a crowded machine needs some
DEADLINE = 120.0  # seconds from the first step to the end of a run that is lost; a few on an idle machine
ROW, VERSION, PUBLISH = 24, 14, 1  # calls of completions, weight_info and a publish that are of step 2

# name -> path, act, first call, what is said where it goes on for good
SERVERS = {
    "dies": (ROWS, faults.dies(back=True), ROW, "lost at|does not answer"),
    "hangs": (ROWS, faults.hangs, ROW, r"is silent: \d rows? wait"),
    "bytes cut": (ROWS, faults.cut(40), ROW, "lost at /v1/completions: IncompleteRead"),
    "JSON cut": (ROWS, faults.cut(0), ROW, "answers /v1/completions without JSON"),
    "row cut": (ROWS, faults.row(faults.cut_row), ROW, "5 tokens of 8|13 tokens of 16"),
    "HTTP 500": (ROWS, faults.fails, ROW, r"fails at /v1/completions \(500\): EngineCore died"),
    "K - 1 responses": (ROWS, faults.no_row, ROW, "did not send one response to row"),
    "sent twice": (ROWS, faults.sent_twice(), ROW, "swapped or sent twice"),
    "NaN": (ROWS, faults.logp(math.nan), ROW, r"sent nan as the log-probability of token 1 of row \d"),
    "null": (ROWS, faults.logp(None), ROW, r"sent None as the log-probability of token 1 of row \d"),
    "-inf": (ROWS, faults.logp(-math.inf), ROW, r"sent NaN or -inf as the log-probability of token 1"),
    "positive": (ROWS, faults.logp(0.5), ROW, r"sent 0.5 as the log-probability of token 1"),
    "token id": (ROWS, faults.token(10**6), ROW, "sent 1000000 as token 1 of row"),
    "wrong version": (INFO, faults.other_tag, VERSION, "has weights stranger-7; expected pmdkit-"),
    "publish cut off": ("update_weights", faults.half(faults.fails), PUBLISH, "update_weights .500.: EngineCore died"),
    "refuses finish": ("finish_weight_update", faults.fails, PUBLISH, "finish_weight_update .500.: EngineCore died"),
}
ALIKE = ("bytes cut", "row cut", "null", "-inf", "positive")  # for good they end as "JSON cut" and "NaN" do
# name -> path, act, first call, what is said; the first time is the last
CAUGHT = {
    "half-applied weights": ("update_weights", faults.half(None), PUBLISH, "disagree on .* other weights"),
    "stale prefix cache": ("reset_prefix_cache", faults.keeps_cache, PUBLISH, "its own reading.*older weights"),
    "another temperature": (ROWS, faults.hot, 0, "differ by .* nats on average from its own reading"),
}

DRAW = 4  # the call of generate that is of step 2

# the same of engines in this process: name -> method, act, first call, what is said where it goes on for good
ENGINES_HERE = {
    "dies": ("generate", slips.dies, DRAW, "the engine was killed"),
    "K - 1 responses": ("generate", slips.rows(lambda n: list(range(n - 1))), DRAW, r"with \d rows; expected \d, \d"),
    "sent twice": (
        "generate",
        slips.rows(lambda n: [0, *range(n - 1)]),
        DRAW,
        "rows 0 and 1 are the same|rows are swapped",
    ),
    "NaN": ("generate", slips.logp(math.nan), DRAW, "row 0 with log-probability nan for token 1"),
    "-inf": ("generate", slips.logp(-math.inf), DRAW, "row 0 with log-probability -inf for token 1"),
    "positive": ("generate", slips.logp(0.5), DRAW, "row 0 with log-probability 0.5 for token 1"),
    "token id": ("generate", slips.token(10**6), DRAW, "holds a token outside the model's vocabulary"),
    "negative id": ("generate", slips.token(-1), DRAW, "holds a token outside the model's vocabulary"),
    "row cut": ("generate", slips.masked(slice(0, 1), slice(5, None)), DRAW, "row 0 is cut off before its"),
    "row with a gap": ("generate", slips.masked(slice(0, 1), slice(2, 3)), DRAW, "row 0 has gaps, or no token"),
    "row without tokens": ("generate", slips.masked(slice(0, 1), slice(None)), DRAW, "row 0 has gaps, or no token"),
    "publish cut off": ("publish", slips.half("the pipe broke"), PUBLISH, "the pipe broke"),
}
CAUGHT_HERE = {
    "wrong version": ("generate", slips.drawn(slips.older), DRAW, "weights of version 0; expected 1"),
    "half-applied weights": ("publish", slips.half(""), PUBLISH, "disagree on .* other weights"),
    "weights of before": ("publish", slips.keeps_weights, PUBLISH, "disagree on .* other weights"),
    "stale prefix cache": ("publish", slips.keeps_cache, PUBLISH, "its own reading.*older weights"),
    "another temperature": ("generate", slips.hot, 0, "differ by .* nats on average from its own reading"),
}


@pytest.fixture
def runner(call, capsys, tmp_path):
    return Runner(call, capsys, tmp_path)


@pytest.fixture(scope="module")
def model():
    return small_model()


@pytest.fixture
def serve(model, runner):
    """Runs on a server with a script, whose end is waited for."""
    made = []

    def run(*script: ServerFault, **options):
        server = ScriptedServer(*model, *script)
        made.append(server)
        where = {"rollout.engine": "vllm-server", "vllm.urls": [server.url]}
        ended = runner({**SMALL, **where, "rollout.silence": SILENCE, "vllm.start": START, **options})
        return ended

    yield run
    for server in made:
        server.close()


@pytest.fixture
def here(runner, monkeypatch):
    """Runs on an engine in this process with a script."""
    maker = Maker()
    monkeypatch.setitem(sys.modules, "scripted_engines_of_the_tests", maker)
    monkeypatch.setitem(ENGINES, "vllm", "scripted_engines_of_the_tests:make")

    def run(*script: Slip, **options):
        maker.slips = script
        return runner({**SMALL, "rollout.engine": "vllm", **options})

    return run


@pytest.fixture(scope="module")
def undisturbed():
    """Bits of runs that nothing disturbed, by kind of engine; filled by whoever needs them first."""
    return {}


def lost(ended, code, said):
    """It ended with this code and one sentence, and the first checkpoint is whole."""
    assert ended.code == code, ended.said
    assert re.search(said, ended.sentence), ended.sentence
    assert "Traceback" not in ended.said


@pytest.mark.parametrize("name", mostly_nightly(SERVERS, *list(SERVERS)[::4]))
def test_a_server_that_fails_once_is_restarted_and_the_run_ends_on_the_same_bits(name, serve, undisturbed):
    if not undisturbed:
        whole = serve()
        assert whole.code == 0, whole.said
        undisturbed["server"] = whole.bits
    path, act, first, _ = SERVERS[name]
    ended = serve(*once(path, act, first))
    assert ended.code == 0, ended.said
    assert "it is restarted and repeats the request" in ended.said
    assert ended.rows[-1]["engine_restarts"] >= 1
    assert ended.bits == undisturbed["server"]


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in SERVERS if name not in ALIKE])
def test_a_server_that_fails_for_good_ends_the_run_in_one_sentence(name, serve):
    path, act, first, said = SERVERS[name]
    act, start = (faults.dies(back=False), SILENCE / 2) if name == "dies" else (act, START)
    began = time.monotonic()
    ended = serve(*ever(path, act, first), **{"vllm.start": start})
    lost(ended, 7, said)
    assert "lost 3 times in a row: the last checkpoint is intact" in ended.sentence
    assert ended.steps == [1]
    assert time.monotonic() - began < DEADLINE


@pytest.mark.parametrize("name", CAUGHT)
def test_what_a_server_keeps_to_itself_is_caught_by_the_canary(name, serve):
    path, act, first, said = CAUGHT[name]
    ended = serve(*once(path, act, first) if first else ever(path, act, first))
    lost(ended, 7, said)
    assert ended.steps == ([1] if first else [])


def test_a_slow_server_is_left_alone(serve, undisturbed):
    ended = serve(ServerFault(ROWS, faults.slow(2 * SILENCE), ROW, 1), **{"rollout.silence": 1.5 * SILENCE})
    assert ended.code == 0, ended.said
    assert [row["engine_restarts"] for row in ended.rows] == [0] * STEPS
    assert not undisturbed or ended.bits == undisturbed["server"]


def test_a_foreign_server_that_takes_the_port_in_the_middle_is_refused(serve, undisturbed):
    """It has another name, which was drawn for this run where the server was started here."""
    models = ServerFault("v1/models", faults.of_another, 1)
    ended = serve(ServerFault(ROWS, faults.of_another, ROW), models)
    lost(ended, 3, r"another server answers at http://127.0.0.1:\d+, which serves \['stranger'\]: set vllm.port")
    assert ended.steps == [1]
    back = serve(ServerFault(ROWS, faults.of_another, ROW, 1))
    assert back.code == 0
    assert not undisturbed or back.bits == undisturbed["server"]


def test_a_foreign_server_on_the_port_at_the_start_is_refused(model, runner, monkeypatch):
    """A server that is started here gets a name that nobody knows; whoever else answers has another."""

    class Process:
        ended = False

        def close(self):
            """Nothing was started."""

    stranger = ScriptedServer(*model)
    for asks in (vllm, server_module):
        monkeypatch.setattr(asks, "installed_version", lambda: "0.32.0")
    monkeypatch.setattr(server_module, "check_plugin", lambda: None)
    monkeypatch.setattr(
        server_module.Fleet, "launch", lambda *_: (Server(stranger.url, "pmdkit-0123456789abcdef"), Process())
    )
    ended = runner({**SMALL, "rollout.engine": "vllm-server", "vllm.start": START})
    stranger.close()
    lost(ended, 3, r"another server answers at http://127.0.0.1:\d+, which serves \['scripted'\]: set vllm.port")
    assert stranger.calls["v1/completions"] == stranger.calls["update_weights"] == 0


@pytest.mark.nightly
@pytest.mark.parametrize("name", ENGINES_HERE)
def test_an_engine_that_fails_once_is_restarted_and_the_run_ends_on_the_same_bits(name, here, undisturbed):
    if "here" not in undisturbed:
        whole = here()
        assert whole.code == 0, whole.said
        undisturbed["here"] = whole.bits
    method, act, first, _ = ENGINES_HERE[name]
    ended = here(Slip(method, act, first, 1))
    assert ended.code == 0, ended.said
    assert ended.said.count("it is restarted and repeats the request") == ended.rows[-1]["engine_restarts"] == 1
    assert ended.bits == undisturbed["here"]


@pytest.mark.parametrize("name", ENGINES_HERE)
def test_an_engine_that_fails_for_good_ends_the_run_in_one_sentence(name, here):
    method, act, first, said = ENGINES_HERE[name]
    ended = here(Slip(method, act, first))
    lost(ended, 7, said)
    assert ended.steps == [1]


@pytest.mark.parametrize("name", CAUGHT_HERE)
def test_what_an_engine_keeps_to_itself_is_caught(name, here):
    method, act, first, said = CAUGHT_HERE[name]
    ended = here(Slip(method, act, first))
    lost(ended, 7, said)
    assert ended.steps == ([1] if first else [])


@pytest.mark.nightly
def test_a_hung_engine_in_this_process_ends_the_run_and_a_slow_one_does_not(here, undisturbed):
    left = threading.Event()
    ended = here(Slip("generate", slips.hangs(left), DRAW), **{"rollout.silence": SILENCE / 2})
    left.set()
    lost(ended, 7, "the engine wrote nothing for 2 s and cannot be stopped from here; the last checkpoint is intact")
    assert ended.steps == [1]
    slow = here(Slip("generate", slips.slow(1.25 * SILENCE), DRAW, 1), **{"rollout.silence": SILENCE / 2})
    assert slow.code == 0, slow.said
    assert [row["engine_restarts"] for row in slow.rows] == [0] * STEPS
    assert "here" not in undisturbed or slow.bits == undisturbed["here"]
