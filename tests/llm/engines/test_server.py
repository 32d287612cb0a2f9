"""The engine of vLLM servers against doubles of them, which misbehave as asked: what is found out, and what is said."""

import json
import socket
import threading
import time
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
import torch
from transformers import PreTrainedTokenizerFast

from pmdkit.errors import Diverged, EnvironmentLacks, UsageError
from pmdkit.llm.engines.base import EngineConfig, EngineLost, Sampling
from pmdkit.llm.engines.vllm import weights_transfer
from pmdkit.llm.engines.vllm.http import Server, with_deadline
from pmdkit.llm.engines.vllm.server import make
from pmdkit.llm.engines.vllm.weights_file import WeightNames
from pmdkit.llm.weights import named_weights
from pmdkit.specs.llm import RolloutTable, VLLMTable

EOS, VOCABULARY, CONTEXT = 2, 97, 64
PROMPTS = [[3, 4, 5], [6], [7, 8]]
SILENCE = 0.8  # seconds


def written(tokens, logp=None, reason="stop"):
    """One row as /v1/completions answers it."""
    logp = [-0.5] * len(tokens) if logp is None else logp
    return [{"token_ids": tokens, "logprobs": {"token_logprobs": logp}, "finish_reason": reason}]


class Double:
    """A server that answers as vLLM 0.32 does, unless told otherwise.

    `replies` maps a path to what is answered there instead: a dictionary, (status, bytes), or a function of the body.
    """

    def __init__(self):
        self.replies, self.calls, self.bodies = {}, [], []
        self.held, self.paused, self.tokens, self.update = "default", False, 0, None
        self.leave = threading.Event()
        double = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                double.answer(self, None)

            def do_POST(self):
                size = int(self.headers.get("Content-Length") or 0)
                double.answer(self, json.loads(self.rfile.read(size)) if size else {})

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_port}"

    def answer(self, handler, body):
        path = handler.path.partition("?")[0]
        self.calls.append(path)
        self.bodies.append(body)
        reply = self.replies.get(path, getattr(self, path.strip("/").replace("/", "_"), None))
        reply = reply(body) if callable(reply) else reply
        if isinstance(reply, dict) and body and "request_id" in body:
            reply = {"id": f"cmpl-{body['request_id']}", **reply}
        status, data = reply if isinstance(reply, tuple) else (200, json.dumps(reply).encode())
        try:
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)
        except OSError:
            pass  # whoever asked has gone

    def health(self, _):
        return 200, b""

    def v1_models(self, _):
        return {"data": [{"id": "double"}]}

    def version(self, _):
        return {"version": "0.32.0"}

    def server_info(self, _):
        model = {"logprobs_mode": "processed_logprobs", "max_model_len": CONTEXT + 1}
        return {"vllm_config": {"model_config": model, "weight_transfer_config": {"backend": "pmdkit-file"}}}

    def metrics(self, _):
        return 200, f'vllm:generation_tokens_total{{engine="0"}} {self.tokens}.0\n'.encode()

    def pause(self, _):
        self.paused = True
        return {"status": "paused"}

    def resume(self, _):
        self.paused = False
        return {"status": "resumed"}

    def init_weight_transfer_engine(self, _):
        return {}

    start_weight_update = reset_prefix_cache = init_weight_transfer_engine

    def update_weights(self, body):
        self.update = body["update_info"]
        return {}

    def finish_weight_update(self, body):
        self.held = body["weight_version"]
        return {}

    def weight_info(self, _):
        return {"weight_version": self.held}

    def v1_completions(self, body):
        if "prompt_logprobs" in body:
            scores = [None] + [{str(token): {"logprob": -token / 10}} for token in body["prompt"][1:]]
            return {"model": "double", "choices": [{"prompt_logprobs": scores}]}
        tokens = [3 + body["seed"] % 90, 3 + len(body["prompt"]), EOS]
        return {"model": "double", "choices": written(tokens)}

    def close(self):
        self.leave.set()
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def doubles():
    both = [Double(), Double()]
    yield both
    for double in both:
        double.close()


@pytest.fixture
def wanted(qwen2, doubles):
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    return EngineConfig(
        model=qwen2,
        tokenizer=PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"a": 0}, unk_token="a"))),
        ends=[EOS],
        rollout=RolloutTable(engine="vllm-server", silence=SILENCE),
        vllm=VLLMTable(urls=[double.url for double in doubles], start=1.0),
        context=CONTEXT,
    )


@pytest.fixture
def engine(wanted):
    engine = make(wanted)
    engine.publish(named_weights(wanted.model), 1)
    yield engine
    engine.close()


def generate(engine, progress=None, width=3, group=2):
    seeds = np.arange(100, 100 + len(PROMPTS) * group).astype(np.uint64)
    return engine.generate(PROMPTS, group, seeds, Sampling(width), progress)


def test_every_row_is_asked_with_its_prompt_and_its_seed_and_comes_back_in_its_place(engine, doubles):
    told = []
    drawn = generate(engine, lambda *numbers: told.append(numbers))
    assert drawn.tokens.tolist() == [[3 + (100 + row) % 90, 3 + len(PROMPTS[row // 2]), EOS] for row in range(6)]
    assert drawn.ended.all()
    assert drawn.version == 1
    assert told[-1] == (18, 6)
    asked = [[body["prompt"] for body in double.bodies if body and "seed" in body] for double in doubles]
    assert sorted(asked[0]) == [PROMPTS[0]] * 2 + [PROMPTS[2]] * 2  # a prompt's rows share a server
    assert asked[1] == [PROMPTS[1]] * 2


def test_scores_are_those_of_the_response_alone(engine):
    scores = engine.score([[3, 4], [5]], [[10, 20], [30]])
    assert [score.tolist() for score in scores] == [pytest.approx([-1.0, -2.0]), pytest.approx([-3.0])]


NONSENSE = {
    "failure": ((500, b'{"error": {"message": "EngineCore died"}}'), "EngineCore died"),
    "garbage": ((200, b"<html>"), "without JSON"),
    "a list": ((200, b"[]"), "not an object"),
    "no choice": ({"model": "double", "choices": []}, "one response to row"),
    "another row's": ({"model": "double", "id": "cmpl-1", "choices": written([3, EOS])}, "swapped or sent twice"),
    "another model": ({"model": "other", "choices": written([3, EOS])}, "answers for the model other"),
    "no log-probabilities": ({"model": "double", "choices": [{"token_ids": [3]}]}, "log-probabilities"),
    "one too few": ({"model": "double", "choices": written([3, EOS], [-1.0])}, "not as many log-probabilities"),
    "null": ({"model": "double", "choices": written([3, EOS], [-1.0, None])}, "sent None .* token 1 of row"),
    "NaN": ({"model": "double", "choices": written([3, EOS], [float("nan"), -1.0])}, "sent nan .* token 0 of row"),
    "clamped": ({"model": "double", "choices": written([3, EOS], [-1.0, -9999.0])}, "NaN or -inf .* token 1 of row"),
    "positive": ({"model": "double", "choices": written([3, EOS], [0.1, -1.0])}, "sent 0.1 .* token 0 of row"),
    "a word": ({"model": "double", "choices": written([3, VOCABULARY])}, "sent 97 as token 1 of row"),
    "too long": ({"model": "double", "choices": written([3, 3, 3, EOS])}, "4 tokens of 3"),
    "too short": ({"model": "double", "choices": written([3, 3], reason="abort")}, "2 tokens of 3.*abort"),
    "behind the end": ({"model": "double", "choices": written([3, EOS, 3], reason="length")}, "3 tokens of 3"),
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_a_lost_engine_and_says_what_was_wrong(engine, doubles, name):
    doubles[1].replies["/v1/completions"], words = NONSENSE[name]
    with pytest.raises(EngineLost, match=words):
        generate(engine)
    with pytest.raises((EngineLost, UsageError), match="publish"):
        generate(engine)  # and it is not asked again


def test_a_refusal_is_told_with_the_words_of_the_server(engine, doubles):
    doubles[0].replies["/v1/completions"] = 400, b'{"error": {"message": "max_tokens=9 is too many"}}'
    with pytest.raises(UsageError, match="max_tokens=9 is too many"):
        generate(engine)


@pytest.mark.slow
def test_a_server_that_never_answers_is_lost_after_the_silence(engine, doubles):
    doubles[1].replies["/v1/completions"] = lambda body: doubles[1].leave.wait(60) and (500, b"")
    begin = time.monotonic()
    with pytest.raises(EngineLost, match=rf"{doubles[1].url} is silent: 2 rows wait"):
        generate(engine)
    assert time.monotonic() - begin < 20 * SILENCE
    assert threading.active_count() < 30  # nobody waits on


@pytest.mark.slow
def test_a_slow_server_that_writes_tokens_is_not_lost(engine, doubles):
    def slow(body):
        for _ in range(20):
            time.sleep(SILENCE / 8)
            doubles[1].tokens += 1
        return doubles[1].v1_completions(body)

    doubles[1].replies["/v1/completions"] = slow
    assert generate(engine).ended.all()


def test_progress_may_stop_a_rollout_and_the_engine_goes_on_afterwards(engine, doubles):
    def stop(tokens, rows):
        raise KeyboardInterrupt

    doubles[0].replies["/v1/completions"] = lambda body: doubles[0].leave.wait(1) or (500, b"")
    with pytest.raises(KeyboardInterrupt):
        generate(engine, stop)
    doubles[0].replies.clear()
    assert generate(engine).ended.all()


def test_a_publish_that_one_server_does_not_take_leaves_none_that_is_asked(engine, doubles, wanted):
    doubles[1].replies["/update_weights"] = 500, b'{"error": {"message": "cut off"}}'
    with pytest.raises(EngineLost, match="cut off"):
        engine.publish(named_weights(wanted.model), 2)
    assert doubles[0].paused
    assert doubles[1].paused
    with pytest.raises(EngineLost, match="parts of two versions"):
        generate(engine)
    doubles[1].replies.clear()
    engine.restart()
    with pytest.raises(UsageError, match="no weights yet"):
        generate(engine)
    engine.publish(named_weights(wanted.model), 2)
    assert generate(engine).version == 2


def test_a_server_that_says_it_has_other_weights_is_not_asked(engine, doubles, wanted):
    doubles[0].held = "somebody else's"
    asked = doubles[0].calls.count("/v1/completions")
    with pytest.raises(EngineLost, match="somebody else's; expected pmdkit-"):
        generate(engine)
    assert doubles[0].calls.count("/v1/completions") == asked
    doubles[0].replies["/finish_weight_update"] = {}  # says yes and keeps the old ones
    with pytest.raises(EngineLost, match="expected pmdkit-"):
        engine.publish(named_weights(wanted.model), 2)
    assert doubles[0].paused


def test_weights_exchanged_during_a_rollout_are_noticed_behind_it(engine, doubles):
    def exchange(body):
        doubles[1].held = "others"
        return doubles[1].v1_completions(body)

    doubles[1].replies["/v1/completions"] = exchange
    with pytest.raises(EngineLost, match="has weights others"):
        generate(engine)


@pytest.mark.parametrize("kind", ["shape", "name", "number"])
def test_weights_that_are_refused_touch_no_server(engine, doubles, wanted, kind):
    weights = dict(named_weights(wanted.model))
    name = next(iter(weights))
    if kind == "shape":
        weights[name] = weights[name][:-1]
    elif kind == "name":
        weights["other"] = weights.pop(name)
    else:
        weights[name] = torch.full_like(weights[name], torch.nan)
    before = [list(double.calls) for double in doubles]
    with pytest.raises(Diverged if kind == "number" else UsageError, match=name.partition(".")[0]):
        engine.publish(weights, 2)
    assert [double.calls for double in doubles] == before
    assert generate(engine).version == 1


def test_the_file_of_a_publish_is_gone_behind_it(engine, doubles, wanted, tmp_path):
    from pathlib import Path

    told = doubles[0].update
    assert set(told) == {"path", "digest", "size"}
    assert not Path(told["path"]).exists()


WRONG = {
    "/health": ((503, b""), "does not answer 1 s after"),
    "/version": ({"version": "0.24.0"}, "vLLM 0.24.0 is installed.*0.28 or later"),
    "/server_info": ((404, b'{"detail": "Not Found"}'), "VLLM_SERVER_DEV_MODE=1"),
    "/init_weight_transfer_engine": ((500, b'{"error": "no weight transfer"}'), "no weight transfer"),
}


@pytest.mark.slow
@pytest.mark.parametrize("path", WRONG)
def test_servers_that_are_not_as_needed_are_refused_at_the_start(wanted, doubles, path):
    doubles[1].replies[path], words = WRONG[path]
    with pytest.raises(EnvironmentLacks, match=words):
        make(wanted)


def test_settings_of_others_servers_are_compared(wanted, doubles):
    doubles[0].replies["/server_info"] = {"vllm_config": {"model_config": {"logprobs_mode": "raw_logprobs"}}}
    with pytest.raises(
        EnvironmentLacks, match=r"raw_logprobs, max_model_len None of 65 needed, weight_transfer_config"
    ):
        make(wanted)


def test_an_answer_that_drips_in_has_a_deadline():
    """Every byte comes in time, and all of them never would."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip():
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
                for _ in range(600):
                    connection.sendall(b" ")
                    time.sleep(0.05)

        threading.Thread(target=drip, daemon=True).start()
        begin = time.monotonic()
        with pytest.raises(EngineLost):
            Server(f"http://127.0.0.1:{listening.getsockname()[1]}").call("GET", "/health", seconds=0.3)
        assert time.monotonic() - begin < 15


def test_a_publish_pauses_loads_forgets_and_resumes_in_this_order(engine, doubles, wanted):
    for double in doubles:
        double.calls.clear()
    engine.publish(named_weights(wanted.model), 2)
    for double in doubles:
        assert double.calls == [
            "/pause",
            "/start_weight_update",
            "/update_weights",
            "/finish_weight_update",
            "/weight_info",
            "/reset_prefix_cache",
            "/resume",
        ]


def test_nccl_gives_the_workers_of_each_server_ranks_of_their_own(doubles):
    fan = weights_transfer.BroadcastClient([Server(double.url) for double in doubles], [4, 2], 5.0)
    fan.tag = "a tag"
    fan.init_weight_transfer_engine({"master_port": 1, "rank_offset": 1, "world_size": 7})
    fan.start_weight_update()
    fan.update_weights({"names": ["w"]})
    fan.finish_weight_update()
    assert [double.bodies[0]["init_info"]["rank_offset"] for double in doubles] == [1, 5]
    assert [double.held for double in doubles] == ["a tag", "a tag"]
    assert [double.update for double in doubles] == [{"names": ["w"]}] * 2


def test_nccl_declares_exactly_what_it_sends(qwen2):
    names = WeightNames(qwen2.config)
    source = weights_transfer.WeightStream(names, torch.bfloat16)
    source.weights = named_weights(qwen2)
    sent = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in source}
    assert list(sent.items()) == [(name, (torch.bfloat16, shape)) for name, shape in names.file_shapes.items()]


def test_nccl_is_refused_without_cuda_and_never_waits_for_ever(wanted, qwen2):
    with pytest.raises(EnvironmentLacks, match="transfer='file'"):
        weights_transfer.check_cuda(torch.device("cpu"))
    gone = threading.Event()
    with pytest.raises(EngineLost, match=r"the rendezvous did not end within 0\.1 s"):
        with_deadline(0.1, "the rendezvous", lambda: gone.wait(30))
    gone.set()
