"""What the vLLM engines need and do without vLLM: versions, arguments, names of weights, a server that is no help."""

import asyncio
import json
import os
import socket
import sys
import threading
from collections import Counter, deque
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import ModuleType, SimpleNamespace

import httpx
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen3MoeConfig

from pmdkit.errors import Diverged, EnvironmentLacks, UsageError
from pmdkit.llm.engines.base import EngineConfig, EngineLost, Sampling
from pmdkit.llm.engines.vllm import arguments, check_version
from pmdkit.llm.engines.vllm.client import Server
from pmdkit.llm.engines.vllm.colocate import ColocatedEngine
from pmdkit.llm.engines.vllm.server import ServerEngine
from pmdkit.llm.engines.vllm.weight_names import WeightNames, layer
from pmdkit.resolve import resolve
from pmdkit.specs.llm import RolloutTable, VLLMTable

SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "tie_word_embeddings": True,
}
DENSE = Qwen2Config(**SIZES)
SPARSE = Qwen3MoeConfig(
    **SIZES | {"tie_word_embeddings": False}, moe_intermediate_size=8, num_experts=3, num_experts_per_tok=2, head_dim=8
)


class Calls(TorchDispatchMode):
    """The operators that were called while it is entered."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, operator, types, arguments=(), options=None):
        self.names.append(str(operator))
        return operator(*arguments, **(options or {}))


def weights_of(config):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(config)


def wanted(device="cpu", rollout=None, size=1, context=50, **table):
    return EngineConfig(
        SimpleNamespace(config=DENSE), None, (2,), RolloutTable(engine="vllm", **(rollout or {})), VLLMTable(**table),
        context=context, device=torch.device(device), size=size,
    )  # fmt: skip


def test_versions():
    for version in ("0.28.0", "0.32.0+cpu", "0.33.0.dev12+g1234abc", "0.100.0", "1.0.0"):
        check_version(version)
    for version in ("0.24.1.post1", "0.27.9", "0.2.4", "dev", None):
        with pytest.raises(EnvironmentLacks):
            check_version(version)


def test_servers_need_addresses():
    ServerEngine.check(VLLMTable(urls=["http://127.0.0.1:8000"]))
    with pytest.raises(UsageError):
        ServerEngine.check(VLLMTable())
    for url in ("127.0.0.1:8000", "ftp://host", "http://", "http://host/path"):
        with pytest.raises(UsageError):
            Server(url, 1.0)


def test_arguments_on_a_cpu_and_on_an_accelerator(tmp_path):
    here = arguments.llm_arguments(wanted(), tmp_path)
    assert (here["max_model_len"], here["load_format"], here["logprobs_mode"]) == (51, "dummy", "processed_logprobs")
    assert here["enforce_eager"]
    assert "distributed_executor_backend" not in here
    there = arguments.llm_arguments(wanted("cuda", memory=0.3, rows=64, size=4, tensor_parallel=2), tmp_path)
    assert (there["gpu_memory_utilization"], there["enable_sleep_mode"], there["max_num_seqs"]) == (0.3, True, 64)
    assert (there["distributed_executor_backend"], there["tensor_parallel_size"]) == ("external_launcher", 2)
    assert not there["enforce_eager"]
    with pytest.raises(UsageError):
        arguments.llm_arguments(wanted("cuda", size=4, tensor_parallel=3), tmp_path)


def test_an_engine_that_writes_during_updates_does_not_sleep():
    assert arguments.sleep_enabled(wanted("cuda"))
    assert not arguments.sleep_enabled(wanted("cuda", rollout={"lag": 1}))
    assert not arguments.sleep_enabled(wanted("cuda", sleep=False))


def test_options_pass_through_but_for_those_of_the_engine(tmp_path):
    assert arguments.llm_arguments(wanted(options={"block_size": 32}), tmp_path)["block_size"] == 32
    with pytest.raises(UsageError):  # set by pmdkit on a CPU
        arguments.llm_arguments(wanted(options={"enable_chunked_prefill": True}), tmp_path)


@pytest.mark.parametrize(
    "options",
    [
        *({name: "my.py"} for name in ("tool_parser_plugin", "reasoning_parser_plugin", "io_processor_plugin")),
        *({f"{name}_cls": "my.Own"} for name in ("worker", "worker_extension", "scheduler")),
        *({name: ["my.Own"]} for name in ("logits_processors", "middleware", "default_mm_loras")),
        {"hf_overrides": {"auto_map": {"AutoModel": "modeling.Own"}}},
        {"kv_transfer_config": {"kv_connector": "Own", "kv_connector_module_path": "my"}},
        {"speculative_config": {"model": "theirs", "trust_remote_code": True}},
        {"compilation_config": {"backend": "my.backend"}},
        *({name: "x"} for name in ("trust_remote_code", "trust-remote-code", "model", "load_format", "download_dir")),
        *({name: "my.Own"} for name in ("attention_backend", "moe_backend", "kv_cache_dtype", "model_impl")),
        {"attention_backend": {"backend": "my"}}, {"cudagraph_capture_sizes": ["my.Own"]}, {"block_size": "my.py"},
        {"enable_dbo": 1}, {"block_size": True}, {"moe_backend": "triton\n"},
    ],
)  # fmt: skip
def test_no_option_names_code_a_file_or_an_address(options):
    with pytest.raises(UsageError, match=f"vllm.options.{next(iter(options))}"):
        resolve("llm", "starter", {"vllm.options": options})


def test_the_environment_is_set_before_vllm_is_imported(monkeypatch):
    monkeypatch.setattr(os, "environ", {})
    monkeypatch.delitem(sys.modules, "vllm", raising=False)
    arguments.set_environment()
    assert os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    monkeypatch.setitem(sys.modules, "vllm", ModuleType("vllm"))
    arguments.set_environment()  # a second engine in the process
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "1"
    with pytest.raises(UsageError):
        arguments.set_environment()
    os.environ.clear()
    with pytest.raises(UsageError):
        arguments.set_environment()


@pytest.mark.parametrize("config", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_names_are_those_of_a_saved_model(config, tmp_path):
    """transformers holds experts as one tensor and files hold them one by one: our stream is what it saves itself."""
    model = weights_of(config)
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    names = WeightNames(config)
    found = dict(names.stream(dict(model.state_dict())))
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    assert set(found) == set(saved) | tied
    assert all(torch.equal(found[name], value) for name, value in saved.items())
    for name in tied:
        assert torch.equal(found[name], model.state_dict()["model.embed_tokens.weight"])


class Watched(dict):
    """Weights that are made on access, as by a gather, and the layers of which any is alive at each access."""

    def __init__(self, weights):
        super().__init__(weights)
        self.made, self.alive = [], []

    def __getitem__(self, name):
        self.alive.append({layer(other) for other, storage in self.made if not storage.expired()} | {layer(name)})
        tensor = super().__getitem__(name).clone()
        self.made.append((name, StorageWeakRef(tensor.untyped_storage())))
        return tensor


@pytest.mark.parametrize("config", [DENSE, SPARSE], ids=["dense", "sparse"])
def test_one_layer_is_held_and_one_check_waits_for_all(config):
    """The first weight of the next layer says that a layer is complete; from the second on the old layer is gone."""
    weights = Watched(weights_of(config).state_dict())
    with Calls() as seen:
        deque(WeightNames(config).stream(weights), maxlen=0)
    assert sum("_local_scalar_dense" in name for name in seen.names) == 1
    assert len(weights.alive) > 20
    places = [layer(name) for name, _ in weights.made]
    for here, before, alive in zip(places[1:], places, weights.alive[1:], strict=False):
        assert len(alive) <= (1 if here == before else 2)


def test_weights_of_another_model_are_refused():
    names, weights = WeightNames(DENSE), dict(weights_of(DENSE).state_dict())
    name = "model.layers.1.self_attn.o_proj.weight"
    for tied in ("lm_head.weight", "model.embed_tokens.weight"):  # under any of its names
        names.check(key for key in weights if key != tied)
    for wrong in (
        {key: value for key, value in weights.items() if key != name},
        weights | {"model.layers.7.mlp.up_proj.weight": weights[name]},
        weights | {name: torch.zeros(16, 17)},
    ):
        with pytest.raises(UsageError):
            list(names.stream(wrong))
    with pytest.raises(Diverged):
        list(names.stream(weights | {name: torch.full((16, 16), torch.inf)}))


class Answers(BaseHTTPRequestHandler):
    """A server that fails: 500, 400, something else than JSON, or nothing."""

    def do_GET(self):
        code = {"/fails": 500, "/refuses": 400}.get(self.path, 200)
        if self.path == "/hangs":
            threading.Event().wait(3)
        self.send_response(code)
        self.end_headers()
        self.wfile.write(b"out of memory")

    def log_message(self, *given):
        pass


@pytest.mark.slow
def test_a_server_that_fails_hangs_or_is_gone_is_a_lost_engine():
    with HTTPServer(("127.0.0.1", 0), Answers) as other:
        threading.Thread(target=other.serve_forever, daemon=True).start()
        server = Server(f"http://127.0.0.1:{other.server_address[1]}", 0.5)
        for path, error in (
            ("/fails", EngineLost),
            ("/refuses", UsageError),
            ("/text", EngineLost),
            ("/hangs", EngineLost),
        ):
            with pytest.raises(error) as lost:
                server.get(path)
            assert server.url in str(lost.value)
        other.shutdown()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        with pytest.raises(EngineLost) as gone:
            Server(f"http://127.0.0.1:{free.getsockname()[1]}", 0.5).get("/health")
        assert gone.value.exit_code == 7
        with pytest.raises(EnvironmentLacks):  # at the start of a run
            ServerEngine(wanted(urls=[f"http://127.0.0.1:{free.getsockname()[1]}"], timeout=0.1))


def test_a_server_is_sent_as_many_requests_as_its_replicas_take(monkeypatch):
    """Two rows a replica at a time: 2 to the first address, 8 to the second, which divides them among 4 replicas."""
    calls, info = Counter(), {"logprobs_mode": "processed_logprobs", "max_model_len": 51}
    most: Counter[str] = Counter()

    def answer(request):
        replicas = {"one": 1, "four": 4}[request.url.host]
        config = {"model_config": info, "parallel_config": {"data_parallel_size": replicas}}
        ready = {"version": "0.33.0", "data": [{"id": "m"}], "vllm_config": config, "weight_version": "tag"}
        return httpx.Response(200, json=ready)

    async def complete(request):
        host = request.url.host
        calls[host] += 1
        most[host] = max(most[host], calls[host])
        await asyncio.sleep(0.01)
        calls[host] -= 1
        choice = {"token_ids": [json.loads(request.content)["seed"]], "logprobs": {"token_logprobs": [-1.0]}}
        return httpx.Response(200, json={"choices": [choice], "usage": {"completion_tokens": 1}})

    monkeypatch.setattr(httpx, "request", lambda method, url, **more: answer(httpx.Request(method, url)))
    whole = httpx.AsyncClient
    mock = httpx.MockTransport(complete)
    monkeypatch.setattr(httpx, "AsyncClient", lambda **more: whole(transport=mock))
    engine = ServerEngine(wanted(urls=["http://one", "http://four"], rows=2))
    engine.tag = "tag"
    drawn = engine.generate([[1], [2]] * 4, 4, np.arange(32, dtype=np.uint64), Sampling(4))
    assert drawn.tokens[:, 0].tolist() == list(range(32))
    assert (engine.replicas, most) == (5, {"one": 2, "four": 8})


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), EnvironmentLacks),
        (RuntimeError("CUDA Error: out of memory at cumem_allocator.cpp:62"), EnvironmentLacks),
        (RuntimeError("wrong shape"), EngineLost),
    ],
)
def test_out_of_memory_in_vllm_names_its_own_key(words, kind):
    def fail(*given, **named):
        raise words

    engine = object.__new__(ColocatedEngine)
    engine.names, engine.config, engine.asleep, engine.calls, engine.threads = WeightNames(DENSE), wanted(), True, 0, 1
    engine.latest = {}
    part = SimpleNamespace(step=fail, add_request=lambda *given: None, abort_request=lambda names: None)
    engine.llm = SimpleNamespace(wake_up=fail, llm_engine=part)
    for call in (lambda: engine.publish(weights_of(DENSE).state_dict(), 1), lambda: engine.run_requests([[1]], [None])):
        with pytest.raises(kind) as found:
            call()
        assert ("lower vllm.memory" in str(found.value)) == (kind is EnvironmentLacks)
