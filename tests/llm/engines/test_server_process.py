"""Processes of servers without vLLM: what starts them, that nothing of them is left, what they are told to use."""

import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedTokenizerBase

import pmdkit
from pmdkit import processes
from pmdkit.errors import EnvironmentLacks, UsageError
from pmdkit.llm.engines.base import EngineConfig
from pmdkit.llm.engines.vllm import server
from pmdkit.llm.engines.vllm.server import transfer_kind
from pmdkit.llm.engines.vllm.server_process import (
    ServerProcess,
    check_host,
    find_port,
    flags,
    last_words,
    server_accelerators,
    server_command,
    server_environment,
)
from pmdkit.specs.llm import RolloutTable, VLLMTable

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sessions and orphans as Linux has them")

# a server with a child that hears nothing, as vLLM's engine process when the API server is killed
SERVER = """
import subprocess, sys, time
child = [sys.executable, "-c", "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(120)"]
subprocess.Popen(child)
print("ready", flush=True)
time.sleep(120)
"""


def until(condition, seconds=20.0):
    """Whether it becomes so in time."""
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.02)
    return condition()


@pytest.fixture
def process(tmp_path):
    process = ServerProcess([sys.executable, "-c", SERVER], dict(os.environ), tmp_path / "log")
    assert until(lambda: "ready" in process.log.read_text() and len(processes.session_members(process.pid)) == 2)
    yield process
    process.close()


def server_of(process):
    """The process of the server itself: the guard's only child."""
    pid = process.pid
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


def test_closing_ends_a_server_and_what_it_started(process):
    process.close()
    assert process.ended
    assert processes.session_members(process.pid) == {}
    process.close()  # again is no harm


def test_children_of_a_killed_server_end_too(process):
    os.kill(server_of(process), signal.SIGKILL)
    assert until(lambda: process.ended)
    assert processes.session_members(process.pid) == {}
    assert process.how == "was killed by SIGKILL"


@pytest.mark.slow
def test_a_stopped_server_can_be_closed(process):
    for pid in processes.session_members(process.pid):
        os.kill(pid, signal.SIGSTOP)
    process.close()
    assert processes.session_members(process.pid) == {}


def test_a_guard_outlives_the_signals_that_a_scheduler_sends_to_all(process):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process.send_signal(number)
    time.sleep(0.3)
    assert not process.ended
    os.kill(server_of(process), signal.SIGTERM)  # as the scheduler does, too
    assert until(lambda: process.ended)
    assert processes.session_members(process.pid) == {}


def test_a_killed_guard_leaves_nothing_behind_once_it_is_noticed(process):
    process.popen.kill()
    assert until(lambda: process.ended)
    process.close()
    assert processes.session_members(process.pid) == {}


@pytest.mark.slow
def test_everything_ends_with_a_killed_trainer(tmp_path):
    trainer = f"""
import os, sys, time
from pathlib import Path
from pmdkit.llm.engines.vllm.server_process import ServerProcess
process = ServerProcess([sys.executable, "-c", {SERVER!r}], dict(os.environ), Path({str(tmp_path / "log")!r}))
print(process.pid, flush=True)
time.sleep(120)
"""
    root = str(Path(pmdkit.__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", trainer], stdout=subprocess.PIPE, env=os.environ | {"PYTHONPATH": root}
    ) as parent:
        assert parent.stdout is not None
        guard = int(parent.stdout.readline())
        assert until(lambda: len(processes.session_members(guard)) == 2)
        parent.kill()
        parent.wait(20)

    def gone():
        with suppress(FileNotFoundError, ProcessLookupError):
            return "Z" in Path(f"/proc/{guard}/stat").read_text().rpartition(")")[2].split()[0]
        return True

    assert until(gone)
    assert processes.session_members(guard) == {}


def test_the_last_words_are_the_error_and_not_what_follows_from_it(tmp_path):
    log = tmp_path / "log"
    log.write_text(
        "(EngineCore pid=7) ERROR 11-20 18:20:29 [core.py:1063] ValueError: no room for the cache\n"
        "(APIServer pid=6) RuntimeError: Engine core failed. See root cause above.\n"
        "INFO bye\n"
    )
    assert last_words(log) == "ValueError: no room for the cache"
    log.write_text("one\ntwo\n\n")
    assert last_words(log) == "two"
    assert last_words(tmp_path / "none") == ""


def test_a_port_that_is_taken_is_refused_by_its_number():
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(EnvironmentLacks, match=rf"port {port}.*vllm\.port"):
            find_port("127.0.0.1", port)
    assert find_port("127.0.0.1", port) == port
    assert find_port("127.0.0.1", 0) > 0


def test_a_server_never_listens_everywhere_and_beyond_loopback_it_is_said():
    for host in ("0.0.0.0", "::"):
        with pytest.raises(UsageError, match="replace its weights"):
            check_host(host)
    for host in ("127.0.0.1", "::1", "localhost"):
        check_host(host)
    with pytest.warns(UserWarning, match="private networks only"):
        check_host("10.0.0.7")


@pytest.fixture
def wanted(qwen2):
    def wanted(device="cpu", size=1, **table):
        return EngineConfig(
            model=qwen2,
            tokenizer=PreTrainedTokenizerBase(),
            ends=[2],
            rollout=RolloutTable(engine="vllm-server"),
            vllm=VLLMTable(**table),
            context=64,
            device=torch.device(device),
            size=size,
        )

    return wanted


def test_servers_get_the_last_accelerators_that_no_rank_has(wanted, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1,2,3,5,6,7,9")
    some = wanted("cuda", size=2, servers=2, tensor_parallel=2)
    assert server_accelerators(some) == [["5", "6"], ["7", "9"]]
    assert server_environment(some, ["5", "6"])["CUDA_VISIBLE_DEVICES"] == "5,6"
    with pytest.raises(EnvironmentLacks, match=r"2 servers of 4 accelerators need 8; 8 are seen here.* 2 of them"):
        server_accelerators(wanted("cuda", size=2, servers=2, tensor_parallel=2, data_parallel=2))
    assert server_accelerators(wanted(servers=2)) == [[], []]


def test_a_server_knows_nothing_of_the_team_of_ranks(wanted, monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT", "ACCELERATE_USE_FSDP", "VLLM_API_KEY"):
        monkeypatch.setenv(name, "1")
    own = server_environment(wanted(cache_gib=1.5), [])
    assert not {"RANK", "WORLD_SIZE", "MASTER_PORT", "ACCELERATE_USE_FSDP", "VLLM_API_KEY"} & set(own)
    assert own["VLLM_CPU_KVCACHE_SPACE"] == "2"
    assert own["VLLM_SERVER_DEV_MODE"] == "1"


def test_arguments_become_flags():
    given = {
        "max_model_len": 65,
        "enforce_eager": True,
        "enable_chunked_prefill": False,
        "config": {"a": 1},
        "no": None,
    }
    line = ["--max-model-len", "65", "--enforce-eager", "--no-enable-chunked-prefill", "--config"]
    assert flags(given) == [*line, '{"a": 1}']


def test_options_cannot_undo_what_keeps_a_run_right(wanted, tmp_path):
    line = server_command(wanted(options={"block_size": 32}), tmp_path, "file", "127.0.0.1", 8000, "a name")
    assert line[line.index("--block-size") + 1] == "32"
    assert line[line.index("--weight-transfer-config") + 1] == '{"backend": "pmdkit-file"}'
    with pytest.raises(UsageError, match=r"vllm\.options sets host, logprobs-mode"):
        server_command(
            wanted(options={"host": "0.0.0.0", "logprobs-mode": "raw_logprobs"}),
            tmp_path,
            "file",
            "127.0.0.1",
            8000,
            "a name",
        )


def test_a_pmdkit_that_vllm_cannot_find_is_refused_before_a_server_starts(monkeypatch):
    monkeypatch.setattr(server, "entry_points", lambda group: [])
    with pytest.raises(EnvironmentLacks, match=r"vllm\.general_plugins: install it"):
        server.check_plugin()
    point = EntryPoint("pmdkit", "pmdkit.llm.engines.vllm.plugin:register", "vllm.general_plugins")
    monkeypatch.setattr(server, "entry_points", lambda group: [point])
    server.check_plugin()


def test_weights_go_by_nccl_where_there_are_accelerators(wanted):
    assert transfer_kind(wanted()) == "file"
    assert transfer_kind(wanted("cuda")) == "nccl"
    assert transfer_kind(wanted(transfer="nccl")) == "nccl"
    with pytest.raises(UsageError, match="'ipc'"):
        transfer_kind(wanted(transfer="ipc"))
