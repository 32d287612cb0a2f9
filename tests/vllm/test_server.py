"""vLLM servers, for real, on a CPU: the contract over HTTP, the trainer's numbers, crashes, hangs, torn publishes."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import torch

from pmdkit.errors import ComponentDied, EnvironmentLacks, UsageError
from pmdkit.llm.engines.base import EngineLost, Sampling
from pmdkit.llm.engines.vllm import server as server_module
from pmdkit.llm.engines.vllm.http import Server
from pmdkit.llm.engines.vllm.server import answers, make
from pmdkit.llm.logprobs import response_logp
from pmdkit.llm.weight_sync_check import TOLERANCE, WeightSyncCheck
from pmdkit.processes import session_members
from pmdkit.randomness import generator
from pmdkit.testing import check_engine

from .conftest import make_starter

pytestmark = pytest.mark.vllm
PROMPTS = [[3, 4, 5], [6], [7, 8, 9, 10, 11, 3, 4], [5, 5]]
SILENCE, START = 60.0, 300.0


def seeds(rows, seed=0):
    return generator(seed, "test").integers(0, 2**63, rows).astype(np.uint64)


def drawn_by(engine, group=4, width=12):
    return engine.generate(PROMPTS, group, seeds(len(PROMPTS) * group), Sampling(width))


def rows_of(drawn):
    return [tokens[on].tolist() for tokens, on in zip(drawn.tokens, drawn.mask, strict=True)]


@pytest.fixture(scope="module")
def engine(starter):
    """One server for many tests; nothing of it is left behind them."""
    made = make(starter.wanted("vllm-server", {"silence": SILENCE}, start=START))
    yield made
    guards = [process.pid for process in made.fleet.processes]
    scratch = made.fleet.folder
    made.close()
    assert [session_members(guard) for guard in guards] == [{}]
    assert not scratch.exists()


@pytest.fixture
def fresh(engine, starter):
    """It, with the starter's weights, also after a test that broke it."""
    if engine.torn or any(process.ended for process in engine.fleet.processes):
        engine.restart()
    engine.publish(starter.weights(), max(0, engine.version + 1))
    return engine


@pytest.mark.nightly
def test_nothing_is_written_before_weights_were_published(engine):
    with pytest.raises(UsageError, match="no weights yet; publish"):
        drawn_by(engine)
    with pytest.raises(UsageError, match="no weights yet; publish"):
        engine.score([[3]], [[4]])


def test_servers_keep_the_contract_to_the_bit(fresh, starter):
    check_engine(fresh, starter.weights(), starter.ends)


def test_servers_and_trainer_agree(fresh, starter):
    drawn = drawn_by(fresh, 8, 24)
    each = [prompt for prompt in PROMPTS for _ in range(8)]
    with torch.no_grad():
        trainer = torch.cat(response_logp(starter.model, each, rows_of(drawn)).rows())
    assert float((drawn.logp[drawn.mask] - trainer).abs().max()) < 2e-5


def test_a_request_that_is_too_long_is_refused_in_the_words_of_vllm(fresh):
    with pytest.raises(UsageError, match="max_model_len"):
        fresh.generate(PROMPTS, 1, seeds(4), Sampling(1000))
    assert drawn_by(fresh).version == fresh.version


def test_a_second_server_on_the_same_port_is_refused(fresh, starter):
    with pytest.raises(EnvironmentLacks, match=rf"port {fresh.fleet.servers[0].port}"):
        make(starter.wanted("vllm-server", port=fresh.fleet.servers[0].port))


def test_a_server_of_somebody_else_is_taken_by_its_address_and_left_running(fresh, starter):
    server = fresh.fleet.servers[0]
    before = drawn_by(fresh)
    guest = make(starter.wanted("vllm-server", {"silence": SILENCE}, urls=[server.url]))
    guest.publish(starter.weights(), 0)
    assert rows_of(drawn_by(guest)) == rows_of(before)
    with pytest.raises(EngineLost, match="somebody else replaced them"):
        drawn_by(fresh)
    guest.close()
    assert answers(server, "GET", "/health", None, 10.0)
    with pytest.raises(EnvironmentLacks, match="max_model_len"):
        make(starter.wanted("vllm-server", urls=[server.url], context=512))


@pytest.mark.parametrize("how", ["cut off", "altered", "of another model"])
def test_a_torn_publish_never_writes(fresh, starter, monkeypatch, how):
    """The workers compare the whole file first; whatever they find, the server stays paused, and is not asked."""
    before, pack = rows_of(drawn_by(fresh)), fresh.transfer.pack

    def broken(weights):
        if how == "of another model":
            filed = dict(fresh.transfer.names.file_shapes)
            filed["model.norm.weight"] = (7,)
            monkeypatch.setattr(fresh.transfer.names, "file_shapes", filed)
            monkeypatch.setattr(fresh.transfer.names, "stream", lambda *_: wrong(weights, filed))
        packed = pack(weights)
        with open(packed.path, "r+b") as file:
            if how == "cut off":
                file.truncate(packed.size // 2)
            elif how == "altered":
                file.seek(packed.size // 2)
                file.write(b"other")
        return packed

    def wrong(weights, filed):
        return (
            (name, weights[name].new_zeros(shape) if name in weights else torch.zeros(shape))
            for name, shape in filed.items()
        )

    with monkeypatch.context():
        monkeypatch.setattr(fresh.transfer, "pack", broken)
        with pytest.raises(EngineLost, match={"of another model": r"expected \[96\]"}.get(how, how)):
            fresh.publish(starter.weights(), fresh.version + 1)
        monkeypatch.undo()
    with pytest.raises(EngineLost, match="parts of two versions"):
        drawn_by(fresh)
    server = fresh.fleet.servers[0]
    assert server.call("GET", "/is_paused", seconds=10.0) == {"is_paused": True}
    with pytest.raises(EngineLost):
        server.call("POST", "/v1/completions", {"model": server.model, "prompt": [3], "max_tokens": 1}, seconds=2.0)
    # nothing was loaded, so that this one may go on without a restart
    fresh.publish(starter.weights(), fresh.version + 1)
    assert rows_of(drawn_by(fresh)) == before


def while_writing(engine, harm):
    """How long it takes until a rollout that is harmed on its way is lost, and why."""
    harmed = []

    def progress(tokens, rows):
        if not harmed:
            harm()
            harmed.append(time.monotonic())

    with pytest.raises(EngineLost) as lost:
        engine.generate(PROMPTS * 64, 8, seeds(len(PROMPTS) * 64 * 8), Sampling(200), progress)
    return time.monotonic() - harmed[0], str(lost.value)


@pytest.mark.nightly
@pytest.mark.parametrize("which", ["server", "engine"])
def test_a_killed_server_is_lost_at_once_and_writes_the_same_after_a_restart(fresh, starter, which):
    before = drawn_by(fresh)
    guard = fresh.fleet.processes[0].pid
    pids = sorted(pid for pid, tracker in session_members(guard).items() if not tracker)
    seconds, words = while_writing(fresh, lambda: os.kill(pids[0 if which == "server" else -1], signal.SIGKILL))
    assert fresh.fleet.servers[0].url in words
    assert seconds < SILENCE / 2
    fresh.restart()
    assert session_members(guard) == {}
    with pytest.raises(UsageError, match="publish"):
        drawn_by(fresh)
    fresh.publish(starter.weights(), before.version)
    after = drawn_by(fresh)
    assert rows_of(after) == rows_of(before)
    assert torch.equal(after.logp, before.logp)


@pytest.mark.nightly
def test_a_hung_server_is_lost_after_the_silence_and_replaced(fresh, starter, monkeypatch):
    before = rows_of(drawn_by(fresh))
    monkeypatch.setattr(fresh, "silence", 3.0)
    monkeypatch.setattr(server_module, "SOON", 3.0)
    guard = fresh.fleet.processes[0].pid

    def stop():
        for pid in session_members(guard):
            os.kill(pid, signal.SIGSTOP)

    seconds, words = while_writing(fresh, stop)
    assert "is silent" in words
    assert seconds < 30
    monkeypatch.setattr(fresh, "silence", SILENCE)
    fresh.restart()
    assert session_members(guard) == {}
    fresh.publish(starter.weights(), fresh.version + 1)
    assert rows_of(drawn_by(fresh)) == before


LONG = [list(range(3, 43)) * 4, list(range(4, 44)) * 4]


def watched(model):
    """A canary with long prompts, and what the trainer expects of a server with the weights of a model."""
    canary = WeightSyncCheck(LONG, [[5, 6, 7, 8], [9, 10, 11]], TOLERANCE["float32"])
    with torch.no_grad():
        return canary, response_logp(model, canary.prompts, canary.responses).rows()


def test_half_of_an_update_is_caught_by_the_canary(fresh, starter):
    """The file is whole and its digest right, and every second tensor in it is the old one."""
    other, old = make_starter(seed=1), starter.weights()
    canary, expected = watched(other.model)
    half = {name: old[name] if at % 2 else weight for at, (name, weight) in enumerate(other.weights().items())}
    fresh.publish(half, fresh.version + 1)
    with pytest.raises(ComponentDied, match=r"disagree on 7 fixed tokens .*: the engine has other weights"):
        canary.check(fresh, expected)
    fresh.publish(other.weights(), fresh.version + 1)
    canary.check(fresh, expected)


def test_a_prefix_cache_that_survives_a_publish_is_caught_by_the_canary(fresh, starter, monkeypatch):
    """Blocks of 128 tokens are kept, so that prompts are longer."""
    canary, expected = watched(starter.model)
    canary.check(fresh, expected)  # the server knows the prompts now
    other = make_starter(seed=1)
    canary, expected = watched(other.model)
    call = Server.call

    def keep(server, method, path, *given, **how):
        if path == "/reset_prefix_cache":
            return {}
        path += "&clear_cache=false" if path.startswith("/pause") else ""  # which clears by default
        return call(server, method, path, *given, **how)

    with monkeypatch.context() as patch:
        patch.setattr(Server, "call", keep)
        fresh.publish(other.weights(), fresh.version + 1)
    with pytest.raises(ComponentDied, match=r"its own reading .*older weights"):
        canary.check(fresh, expected)
    fresh.publish(other.weights(), fresh.version + 1)
    canary.check(fresh, expected)


def test_a_foreign_server_on_the_port_is_known_by_its_name(fresh):
    """A server that was started here has a name that was drawn for it; this one has another, though it is vLLM too."""
    stranger = Server(fresh.fleet.servers[0].url, "pmdkit-0123456789abcdef")
    with pytest.raises(EnvironmentLacks, match=r"another server answers at .*, which serves \['pmdkit-\w+'\]"):
        fresh.fleet.check_name(stranger)


@pytest.mark.nightly
def test_two_servers_keep_the_contract(fresh, starter, monkeypatch):
    wanted = starter.wanted("vllm-server", {"silence": SILENCE}, start=START, servers=2)
    pair = make(wanted)
    try:
        pair.publish(starter.weights(), 3)
        assert rows_of(drawn_by(pair)) == rows_of(drawn_by(fresh))
        check_engine(pair, starter.weights(), starter.ends)
        seen = [server.text("/metrics", seconds=10.0) for server in pair.fleet.servers]
        assert all("vllm:generation_tokens_total" in text for text in seen)
        packed = pair.transfer.pack(starter.weights())
        Path(packed.path).write_bytes(b"short")
        monkeypatch.setattr(pair.transfer, "pack", lambda weights: packed)
        with pytest.raises(EngineLost, match="cut off"):
            pair.publish(starter.weights(), pair.version)
        with pytest.raises(EngineLost, match="parts of two versions"):
            drawn_by(pair)
    finally:
        pair.close()


@pytest.mark.nightly
@pytest.mark.parametrize("guarded", [True, False])
def test_no_process_is_left_when_the_trainer_is_killed(starter, tmp_path, guarded):
    """Killed while a server starts: its engine process exists by then, and hears of nothing by itself.

    Or when it has started, and the guard with it, as by `pkill -9 python`: each process ends with the one above it.
    """
    starter.model.save_pretrained(tmp_path / "model")
    starter.tokenizer.save_pretrained(tmp_path / "model")
    trainer = f"""
import time
from transformers import AutoModelForCausalLM, AutoTokenizer
from pmdkit.llm.engines.base import EngineConfig
from pmdkit.llm.engines.vllm.server import Fleet
from pmdkit.specs.llm import RolloutTable, VLLMTable
folder = {str(tmp_path / "model")!r}
model, tokenizer = AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
config = EngineConfig(model, tokenizer, [2], RolloutTable(), VLLMTable(cache_gib=0.25), context=64)
fleet = Fleet(config)
kept = fleet.launch
def launch(*given):
    server, process = kept(*given)
    print(process.pid, flush=True)
    return server, process
fleet.launch = launch
fleet.start()
print("started", flush=True)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", trainer], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        watchdog = threading.Timer(START, parent.kill)
        watchdog.start()
        guard = int(parent.stdout.readline())
        until = time.monotonic() + START
        while sum(not tracker for tracker in session_members(guard).values()) < 2 and time.monotonic() < until:
            time.sleep(0.1)
        assert sum(not tracker for tracker in session_members(guard).values()) >= 2
        if not guarded:
            assert parent.stdout.readline() == b"started\n"
            os.kill(guard, signal.SIGKILL)
        parent.kill()
        parent.wait(20)
        watchdog.cancel()
    until = time.monotonic() + 30
    while (session_members(guard) or Path(f"/proc/{guard}/cmdline").exists()) and time.monotonic() < until:
        time.sleep(0.1)
    assert session_members(guard) == {}


@pytest.mark.nightly
def test_a_server_that_cannot_start_says_why(starter):
    wanted = starter.wanted("vllm-server", start=START, options={"block_size": 7})
    with pytest.raises(EnvironmentLacks, match=r"did not start: it ended with exit code 1; its last words: .*block"):
        make(wanted)
