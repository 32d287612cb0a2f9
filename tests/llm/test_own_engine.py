"""llm/own_engine.py keeps the contract of engines and trains, against a stub of SGLang's HTTP interface."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForCausalLM

from pmdkit import train
from pmdkit.errors import UsageError
from pmdkit.llm.engines import check_engine as check_recipe
from pmdkit.llm.engines import engine_class, engine_options, engine_traits
from pmdkit.llm.engines.base import EngineConfig, EngineLost, Sampling
from pmdkit.llm.engines.transformers import TransformersEngine
from pmdkit.resolve import resolve
from pmdkit.specs.llm import RolloutTable
from pmdkit.testing import check_engine

from .conftest import EOS, build
from .ranks import ROOT

OWN = f"{ROOT / 'llm' / 'own_engine.py'}:SGLangEngine"
TINY = str(Path(__file__).with_name("tiny.toml"))


class Stub:
    """What SGLang answers, computed by a transformers model that it reads from the folder it is told."""

    def __init__(self):
        self.model, self.version, self.lock = None, "default", threading.Lock()

    def update(self, body):
        self.model = AutoModelForCausalLM.from_pretrained(body["model_path"])
        self.version = body["weight_version"]
        return {"success": True, "message": "", "num_paused_requests": 0}

    def generate(self, body):
        how, tokens = body["sampling_params"], body["input_ids"]
        engine = TransformersEngine(self.model, how.get("stop_token_ids", [EOS]))
        sampling = Sampling(how["max_new_tokens"], how.get("temperature") or 1.0, greedy=how.get("temperature") == 0)
        drawn = engine.generate([tokens], 1, np.array([how.get("sampling_seed", 0)], dtype=np.uint64), sampling)
        facts = {"weight_version": self.version, "input_token_logprobs": []}
        if (start := body.get("logprob_start_len", -1)) >= 0:  # the first has none, since nothing before it is scored
            (logp,) = engine.score([tokens[: start + 1]], [tokens[start + 1 :]])
            pairs = zip([None, *logp.tolist()], tokens[start:], strict=True)
            facts["input_token_logprobs"] = [[value, token, None] for value, token in pairs]
        written = zip(drawn.logp[0].tolist(), drawn.tokens[0].tolist(), strict=True)
        facts["output_token_logprobs"] = [[value, token, None] for value, token in written]
        return {"text": "", "meta_info": facts}


@contextmanager
def serving():
    """A stub and its address."""
    stub = Stub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            self.do_POST()

        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)) or b"{}")
            with stub.lock:
                calls = {"/update_weights_from_disk": stub.update, "/generate": stub.generate}
                answer = calls.get(self.path, lambda body: None)(body)
            found = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(200 if self.path in (*calls, "/health", "/flush_cache") else 404)
            self.send_header("content-type", "application/json" if found else "text/plain")
            self.send_header("content-length", str(len(found)))
            self.end_headers()
            self.wfile.write(found)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield stub, f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_it_keeps_the_contract_and_notices_other_weights():
    with serving() as (stub, url):
        model, kind = build("qwen2"), engine_class(OWN)
        config = EngineConfig(model, None, [EOS, 5], RolloutTable(), kind.Options(url=url))
        engine = kind(config)
        engine.publish(model.state_dict(), 0)
        check_engine(engine, model.state_dict(), [EOS, 5], tolerance=1e-4)
        stub.version = "default"
        with pytest.raises(EngineLost, match="expected version 3"):
            engine.score([[3]], [[4]])
        engine.close()
    with pytest.raises(EngineLost, match="/health"):
        kind(config)


@pytest.mark.slow
def test_a_run_draws_from_it_and_the_canary_agrees(tmp_path):
    with serving() as (stub, url):
        options = {"rollout.engine": OWN, "engine.options": {"url": url}}
        run = train("pmd-mean", "llm", TINY, out=tmp_path / "run", steps=1, options=options)
    assert run.metrics[0]["canary_max"] < 1e-3
    assert stub.version == "1"


def test_its_traits_and_options_are_known_before_it_is_made():
    spec, _ = resolve("llm", TINY, {"rollout.engine": OWN, "engine.options": {"rows": 8}})
    check_recipe(spec)
    assert engine_traits(spec).central
    assert engine_options(spec).rows == 8
    for changes, words in (
        ({"rollout.engine": "vlm"}, "vllm"),
        ({"rollout.engine": OWN, "engine.options": {"ur": ""}}, r"engine\.options\.url"),
        ({"engine.options": {"rows": 8}}, r"in \[vllm\]"),
    ):
        with pytest.raises((UsageError, ValueError), match=words):
            resolve("llm", TINY, changes)
